import { execFile } from "node:child_process";
import { randomUUID } from "node:crypto";
import { once } from "node:events";
import { chmod, readFile, writeFile } from "node:fs/promises";
import { type IncomingMessage, request as requestHttp } from "node:http";
import { request as requestHttps } from "node:https";
import { promisify } from "node:util";
import { TINY_PNG } from "./generator/media.ts";

const run = promisify(execFile);

const CLI_TIMEOUT_MS = 20_000;
export const DEMO = { account: "demo", credits: 1_000 };
export const EMPTY = { account: "demo-empty", credits: 0 };
export const OWN_REQUEST_ID = `npm-start-${randomUUID()}`;

interface DemoKey {
  key: string;
  baseUrl: string;
  /** Its account is closed. */
  isBarred: boolean;
}

/** A key of earlier starts if the gateway still knows it, else a new one. @param path readable by the owner alone */
export async function demoKey(
  place: string,
  { account, credits }: { account: string; credits: number },
  path: string,
  cli: string,
  env: NodeJS.ProcessEnv,
): Promise<DemoKey> {
  const kept = (await readFile(path, "utf8").catch(() => "")).trim();
  const known = kept.startsWith("sk_") ? await urlFor(kept, place) : undefined;
  if (known !== undefined) return { key: kept, ...known };
  const granted = credits > 0 ? ["--credits", String(credits)] : [];
  const args = [cli, "keys", "create", "--account", account, ...granted, "--json"];
  const { stdout } = await run(process.execPath, args, { env, timeout: CLI_TIMEOUT_MS });
  const made: unknown = JSON.parse(stdout);
  if (typeof made !== "object" || made === null || !("key" in made) || typeof made.key !== "string") {
    throw new Error("`keys create` answered without a key");
  }
  await writePrivately(path, `${made.key}\n`);
  const answered = await urlFor(made.key, place);
  if (answered === undefined) throw new Error("the gateway does not know the key that was just made");
  return { key: made.key, ...answered };
}

async function urlFor(key: string, place: string): Promise<Omit<DemoKey, "key"> | undefined> {
  const headers = { authorization: `Bearer ${key}`, "x-request-id": OWN_REQUEST_ID };
  const { url, status, why } = await answeringAt(place, "/api/v1/credits", headers);
  if (status !== 200 && status !== 401 && status !== 403)
    throw new Error(`the gateway answers ${status ?? why} to GET /api/v1/credits`);
  return status === 401 ? undefined : { baseUrl: url, isBarred: status === 403 };
}

export const barredText = (account: string, envFile: string): string =>
  `\nAccount "${account}" is closed, so its key gets 403. Reopen it in another terminal:
(. ${envFile}; npm run -s tollgate -- accounts set ${account} --status active)`;

/** For an interactive bash or zsh: no jq, no line continuations, `:` for text, because zsh runs `#`. */
export function demoText(options: {
  baseUrl: string;
  key: string;
  emptyKey: string;
  envFile: string;
  isSandbox: boolean;
}): string {
  const { baseUrl, key, emptyKey, envFile, isSandbox } = options;
  const api = '"$TOLLGATE/api/v1';
  const auth = '-H "Authorization: Bearer $KEY"';
  // The certificate is for another name.
  const curl = baseUrl.startsWith("https:") ? "curl -sSk" : "curl -sS";
  const json = "-H 'Content-Type: application/json'";
  const taskId = `sed -n 's/.*"task_id" *: *"\\([^"]*\\)".*/\\1/p'`;
  const generate = (prompt: string, as = auth): string =>
    `${curl} -X POST ${api}/gen2/text-to-video" ${as} ${json} -d '{"prompt":"${prompt}"}'`;
  const credits = `${curl} ${api}/credits" ${auth}; echo`;
  const failures = `: 'A task that fails: the poll after it gives its credits back, and the transactions have the refund.'
TASK=$(${generate("A paper boat [sandbox: fail duration=0s]")} | ${taskId}); ${curl} ${api}/tasks/$TASK" ${auth}; echo
${credits}
: 'Four at once: three tasks may run at a time, the next one is 429 with the seconds to wait.'
for N in 1 2 3 4; do ${generate("A paper boat")}; echo; done
`;
  return `How to make the sandbox fail, hang or slow down: docs/sandbox.md. Ctrl-C stops everything; the data stay.

: 'Paste these lines one after the other, into bash or zsh. First whether everything is in order.'
(. ${envFile}; npm run -s tollgate -- doctor)
: 'Where the gateway is, and two keys: one with credits, one without.'
export TOLLGATE=${baseUrl} KEY=${key} EMPTY_KEY=${emptyKey}
: 'A video from text; the shell keeps its task id.'
TASK=$(${generate("A paper boat on a calm lake")} | ${taskId}); echo "$TASK"
: 'Poll; after five seconds it is completed, and video_url answers.'
${curl} ${api}/tasks/$TASK" ${auth}; echo
: 'Credits, limits and the latest transactions.'
${credits}
: 'Upload an image of one pixel. The URL is HTTPS with a certificate made at this start: curl -k opens it.'
echo ${TINY_PNG.toString("base64")} | base64 -d > "\${TMPDIR:-/tmp}/tollgate-pixel.png"
${curl} -X POST ${api}/upload" ${auth} -F "file=@\${TMPDIR:-/tmp}/tollgate-pixel.png;type=image/png"; echo
: 'A key that does not exist: 401. One of an account without credits: 402.'
${curl} -i ${api}/credits" -H "Authorization: Bearer sk_wrong"; echo
${generate("A paper boat", '-H "Authorization: Bearer $EMPTY_KEY"')}; echo
${isSandbox ? failures : ""}
Demo key (account "demo", ${DEMO.credits} credits at first): ${key}`;
}

export const VARIABLES = [
  "TOLLGATE_CONFIG",
  "HOST",
  "PORT",
  "ADMIN_HOST",
  "ADMIN_PORT",
  "ADMIN_HOSTS",
  "ADMIN_TOKEN",
  "REDIS_URL",
  "UPSTREAM_URL",
  "UPSTREAM_ADAPTER",
  "UPSTREAM_API_KEY",
  "UPSTREAM_PREVIOUS_URL",
  "UPSTREAM_PREVIOUS_API_KEY",
  "FALLBACK_STRATEGY",
  "JOURNAL",
  "LOG_LEVEL",
  "ARCHIVE_URL",
  "WEBHOOK_SECRET_KEY",
  "WEBHOOK_SECRET_KEY_PREVIOUS",
  "NODE_EXTRA_CA_CERTS",
] as const;

/** For the shell's `.`. Unused variables are unset, so that a command never uses another store. */
export async function writeStartEnv(file: string, env: NodeJS.ProcessEnv): Promise<void> {
  const lines = VARIABLES.map((name) => {
    const value = env[name];
    return value ? `export ${name}='${value.replaceAll("'", "'\\''")}'\n` : `unset ${name}\n`;
  });
  await writePrivately(file, lines.join(""));
}

/** Readable by the owner alone. */
export async function writePrivately(file: string, text: string): Promise<void> {
  await writeFile(file, text, { mode: 0o600 });
  // The mode above counts for new files only.
  await chmod(file, 0o600);
}

const ANSWER_TIMEOUT_MS = 2_000;

interface Answering {
  url: string;
  status: number | undefined;
  why: string;
}

export async function answeringAt(
  place: string,
  path: string,
  headers: Record<string, string> = {},
): Promise<Answering> {
  const plain = await statusOf(`http://${place}`, path, headers);
  if (plain.status !== undefined || plain.why === "ECONNREFUSED") return plain;
  const secure = await statusOf(`https://${place}`, path, headers);
  // With server.tls.client_ca the handshake ends with an alert.
  const wantsCertificate =
    secure.why.includes("CERTIFICATE_REQUIRED") || secure.why.includes("HANDSHAKE_FAILURE");
  if (wantsCertificate)
    throw new Error(`${place} asks for a client certificate: start without client_ca here.`);
  return secure.status === undefined ? plain : secure;
}

async function statusOf(url: string, path: string, headers: Record<string, string>): Promise<Answering> {
  try {
    return { url, status: await getUnverified(url + path, headers), why: "" };
  } catch (error) {
    return { url, status: undefined, why: (error as NodeJS.ErrnoException).code ?? (error as Error).message };
  }
}

/** The certificate is for another name. */
async function getUnverified(url: string, headers: Record<string, string>): Promise<number> {
  const options = { headers, agent: false, signal: AbortSignal.timeout(ANSWER_TIMEOUT_MS) } as const;
  const sent = url.startsWith("https:")
    ? requestHttps(url, { ...options, rejectUnauthorized: false })
    : requestHttp(url, options);
  sent.end();
  const [answer] = (await once(sent, "response")) as [IncomingMessage];
  sent.on("error", () => undefined).destroy();
  return answer.statusCode!;
}
