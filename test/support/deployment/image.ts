import { environmentOf, execForm, isInContext, lastOf, parseDockerfile, type Stage } from "./dockerfile.ts";
import { configOf, isAdminPath, type Read, text, unknownVariables } from "./settings.ts";

/** The stage that `docker build` makes, which is the last one. */
export const gatewayStage = (read: Read): Stage => parseDockerfile(text(read, "Dockerfile")).at(-1)!;

/** Contradictions between the Dockerfile and what it packs. */
export function imageProblems(read: Read): string[] {
  const stages = parseDockerfile(text(read, "Dockerfile"));
  const gateway = stages.at(-1)!;
  const ports = lastOf(gateway, "EXPOSE")?.split(" ").map(Number) ?? [];
  const { server, admin } = configOf(text(read, "config/tollgate.yaml"));
  const { version } = JSON.parse(text(read, "package.json"));
  const health = lastOf(gateway, "HEALTHCHECK") ?? "";
  const command = execForm(lastOf(gateway, "CMD") ?? "");
  const rules: [boolean, string][] = [
    [gateway.name === "gateway", "the last stage is not the gateway"],
    [/^[1-9]\d*(:\d+)?$/.test(lastOf(gateway, "USER") ?? ""), "USER must be a number other than 0"],
    [ports.includes(server.port) && ports.includes(admin.port), "EXPOSE names other ports than the config"],
    [isAdminPath(/(\/[a-z]+)`/.exec(health)?.[1] ?? ""), "HEALTHCHECK asks a path that is not there"],
    [command[0] === "node", "CMD puts something between the signal and node"],
    [command[1] === "--disable-sigusr1", "CMD lets SIGUSR1 open the inspector"],
    [read((command[2] ?? "").replace(/\.js$/, ".ts")) !== undefined, "CMD starts a file that is not there"],
    [gateway.steps.some(({ text }) => text === `VERSION=${version}`), "VERSION is not that of package.json"],
  ];
  return [
    ...rules.filter(([holds]) => !holds).map(([, problem]) => problem),
    ...unknownVariables(read, "Dockerfile", Object.keys(environmentOf(gateway))),
    ...stages.flatMap((stage) => copyProblems(read, stage, stages)),
    ...sandboxProblems(stages),
    ...packageManagerProblems(gateway),
    ...contextProblems(read),
  ];
}

function copyProblems(read: Read, stage: Stage, stages: Stage[]): string[] {
  const ignore = text(read, ".dockerignore");
  const copies = stage.steps.filter(({ keyword }) => keyword === "COPY");
  return copies.flatMap(({ flags, text: words }) => {
    if (flags.from !== undefined) {
      return stages.some(({ name }) => name === flags.from) ? [] : [`COPY from no stage: ${flags.from}`];
    }
    const sources = words.split(/ +/).slice(0, -1);
    const missing = sources.filter((path) => read(path) === undefined || !isInContext(path, ignore));
    return missing.map((path) => `COPY ${path}: not there, or ignored`);
  });
}

/** The stand-in generator must not be in the gateway's image: all that it has comes from the bundle, which leaves it out. */
function sandboxProblems(stages: Stage[]): string[] {
  const copies = stages.at(-1)!.steps.filter(({ keyword }) => keyword === "COPY");
  const isBundled = copies.every(({ flags, text }) => flags.from === "bundle" && text === "/app/dist ./");
  return copies.length > 0 && isBundled ? [] : ["the gateway's image has more than the bundle"];
}

/** Files that node's image brings along and nothing here runs. */
const PACKAGE_MANAGERS = ["lib/node_modules", "bin/npm", "bin/npx", "bin/corepack"];

function packageManagerProblems(gateway: Stage): string[] {
  const removal = gateway.steps.find(({ text }) => text.startsWith("cd ../usr/local && rm -rf "));
  const removed = removal?.text.split(" ") ?? [];
  return PACKAGE_MANAGERS.filter((path) => !removed.includes(path)).map(
    (path) => `the image carries /usr/local/${path}`,
  );
}

function contextProblems(read: Read): string[] {
  const ignore = text(read, ".dockerignore");
  const secret = [".env", ".tollgate/redis", ".git/config", "test/unit", "deploy/compose.env.example"];
  return secret.filter((path) => isInContext(path, ignore)).map((path) => `${path} is sent to the builder`);
}
