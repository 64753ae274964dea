import { refusedArguments } from "../domain/operator-texts.ts";
import { behaviourFromEnv } from "./generator/behaviour.ts";
import { DIALECTS, type DialectName, isDialectName } from "./generator/generator-dialect.ts";
import { type Generator, startGenerator } from "./generator/server.ts";

async function main(env: NodeJS.ProcessEnv, as: DialectName): Promise<void> {
  const port = Number(env.PORT || 4010);
  const host = env.HOST || "127.0.0.1";
  const tlsPort = Number(env.SANDBOX_TLS_PORT || 0);
  let generator: Generator;
  try {
    generator = await startGenerator({
      as,
      host,
      port,
      tlsPort,
      apiKey: env.UPSTREAM_API_KEY || undefined,
      publicUrl: env.SANDBOX_PUBLIC_URL?.replace(/\/$/, "") || undefined,
      behaviour: behaviourFromEnv(env),
    });
  } catch (error) {
    process.exitCode = 1;
    console.error(inWords(error, host));
    return;
  }
  const dialect = as === "envelope" ? "" : ` in the dialect ${as}`;
  console.log(
    `Sandbox generator${dialect}: ${generator.url}/api/v1/, uploaded images at ${generator.tlsUrl}`,
  );
  console.log(
    `Steering: GET or PUT ${generator.url}/sandbox/behaviour, or [sandbox: fail] in a prompt; docs/sandbox.md`,
  );
  const stop = () => void generator.stop();
  // `on`, not `once`: a second signal must not interrupt the stop.
  process.on("SIGINT", stop).on("SIGTERM", stop);
}

function inWords(error: unknown, host: string): string {
  if (error instanceof Error && "code" in error && error.code === "EADDRINUSE") {
    const port = "port" in error ? String(error.port) : "it wants";
    return `Port ${port} on ${host} is taken. Stop what listens there, or choose another: PORT=4011 npm run sandbox`;
  }
  return `The sandbox generator cannot start: ${error instanceof Error ? error.message : String(error)}`;
}

const words = process.argv.slice(2);
const [, named = ""] = /^--as[ =](\w+)$/.exec(words.join(" ")) ?? [];
const as = words.length === 0 ? "envelope" : named;
if (isDialectName(as)) await main(process.env, as);
else {
  process.exitCode = 1;
  console.error(
    named
      ? `The sandbox does not speak ${named}; it speaks ${Object.keys(DIALECTS).join(" and ")}.`
      : refusedArguments(words, "npm run sandbox, but for --as kie,"),
  );
}
