// Stands in for a program that cannot run in a test of the guide: it checks every name that it is given, and
// fails on one that is not there. `redis-cli`, `curl`, `kubectl` and `npm` run for real as far as that goes.
import { spawnSync } from "node:child_process";
import { existsSync, globSync, readFileSync } from "node:fs";
import { basename, join } from "node:path";
import { parse } from "yaml";
import { VARIABLES } from "../../../src/sandbox/demo.ts";
import { ROOT } from "./blocks.ts";

const [program = "", ...words] = process.argv.slice(2);
const real = (name: string): string | undefined =>
  (process.env.GUIDE_PATH ?? "")
    .split(":")
    .map((folder) => join(folder, name))
    .find((path) => existsSync(path));

function refuse(why: string): never {
  process.stderr.write(`${program} ${words.join(" ")}: ${why}\n`);
  process.exit(1);
}
const need = (holds: unknown, why: string): void => {
  if (!holds) refuse(why);
};
function run(command: string, args: readonly string[], cwd?: string): void {
  const { status } = spawnSync(command, args, { stdio: "inherit", ...(cwd && { cwd }) });
  process.exitCode = status ?? 1;
}
const text = (file: string): string => readFileSync(join(ROOT, file), "utf8");
const tollgate = (args: readonly string[]): void =>
  run(process.execPath, [join(ROOT, "src/cli.ts"), ...args]);
/** `node src/cli.js ...`, as it runs in a container. */
function inContainer(command: readonly string[]): void {
  need(command[0] === "node" && command[1] === "src/cli.js", "the image has node and src/cli.js");
  tollgate(command.slice(2));
}

const optionValues = (names: readonly string[]): string[] =>
  words.flatMap((word, at) => (names.includes(word) ? [words[at + 1] ?? ""] : []));
const plain = (takingValue: readonly string[]): string[] =>
  words.filter((word, at) => !word.startsWith("-") && !takingValue.includes(words[at - 1] ?? ""));

function docker(): void {
  const services = Object.keys(parse(text("compose.yaml")).services);
  for (const name of optionValues(["-e"]).map((pair) => pair.split("=")[0] ?? ""))
    need((VARIABLES as readonly string[]).includes(name), `no gateway reads ${name}`);
  for (const volume of optionValues(["-v"]))
    need(text("Dockerfile").includes(volume.split(":")[1] ?? ""), `the image has no ${volume}`);
  if (words[0] === "build" || words[0] === "run") return;
  need(words[0] === "compose", "only `build`, `run` and `compose` are known");
  const [, verb = "", ...rest] = words;
  need(["up", "exec", "logs", "build", "stop", "kill", "ps"].includes(verb), `compose has no ${verb}`);
  const [service = "", ...command] = rest.filter((word) => !word.startsWith("-") || verb === "exec");
  if (service) need(services.includes(service), `compose.yaml has no service ${service}`);
  if (verb === "exec") inContainer(command);
}

function kubectl(): void {
  const folder = optionValues(["-k"])[0];
  const binary = real("kubectl");
  if (folder !== undefined) {
    need(existsSync(join(folder, "kustomization.yaml")), `${folder} has no kustomization.yaml`);
    if (binary) run(binary, ["kustomize", folder]);
    return;
  }
  const [verb, kind] = plain(["-n"]);
  if (verb === "create") {
    need(["namespace", "secret"].includes(kind ?? ""), `nothing is known of ${kind}`);
    const names = optionValues([]).concat(
      words.flatMap((word) => /^--from-literal=(\w+)=/.exec(word)?.[1] ?? []),
    );
    for (const name of names)
      need((VARIABLES as readonly string[]).includes(name), `no gateway reads ${name}`);
    if (binary) run(binary, [...words, "--dry-run=client", "-o", "yaml"]);
    return;
  }
  need(verb === "exec", `${verb} is not known here`);
  const { metadata } = parse(text("deploy/kubernetes/gateway.yaml").split(/^---$/m)[0] ?? "");
  need(words.includes(`${metadata.name}-0`), `there is no such pod; it is ${metadata.name}-0`);
  inContainer(words.slice(words.indexOf("--") + 1));
}

function helm(): void {
  const [verb, , chart = ""] = plain(["-n", "-f", "--set"]);
  need(["install", "template"].includes(verb ?? ""), `${verb} is not known here`);
  need(existsSync(join(chart, "Chart.yaml")), `${chart} has no Chart.yaml`);
  for (const file of optionValues(["-f"])) need(existsSync(file), `there is no ${file}`);
  // Settings that the chart's `config` leaves to its reader are as in the gateway's own file.
  const values = { ...parse(text("deploy/helm/values.yaml")), config: parse(text("config/tollgate.yaml")) };
  for (const [path = ""] of optionValues(["--set"]).map((pair) => pair.split("="))) {
    const isThere = path.split(".").reduce((at: unknown, name) => Object(at)[name], values) !== undefined;
    need(isThere, `the chart has no value ${path}`);
  }
}

function systemctl(): void {
  const units = globSync("*.service", { cwd: join(ROOT, "deploy/systemd") }).map((name) =>
    basename(name, ".service"),
  );
  const [verb = "", ...names] = plain([]);
  need(
    ["enable", "disable", "restart", "reload", "stop", "start"].includes(verb),
    `systemctl has no ${verb}`,
  );
  for (const name of names)
    need(units.includes(name.replace(/@.*/, "@")) || name === "redis-server", `there is no unit ${name}`);
}

/** A service's log: first a line that is no JSON, at which `jq` must not stop. */
function journalctl(): void {
  need(
    optionValues(["-u"]).every((unit) => unit === "tollgate"),
    "there is no such unit",
  );
  need(
    words.every((word) => !word.startsWith("--") || word === "--since"),
    "an option is not known",
  );
  process.stdout.write(
    `Started tollgate.service - Tollgate.\n(node:1) Warning: something\n42\n${process.env.GUIDE_LOG}\n`,
  );
}

/** Newer than the Redis of the tests: the guide says from which release on. */
const NEWER = ["CLUSTER MIGRATION"];
/** Would change who may log in, or end the server. */
const NOT_RUN = ["ACL", "CLIENT", "CLUSTER", "SHUTDOWN", "SAVE"];

function redisCli(): void {
  const binary = real("redis-cli") ?? refuse("there is no redis-cli");
  const at = words.indexOf("--cluster");
  if (at >= 0) {
    const help = spawnSync(binary, ["--cluster", "help"], { encoding: "utf8" }).stdout;
    need(new RegExp(`^ {2}${words[at + 1]} `, "m").test(help), "there is no such command of --cluster");
    for (const option of words.slice(at + 1).filter((word) => word.startsWith("--cluster-")))
      need(help.includes(option), `--cluster has no ${option}`);
    return;
  }
  const hosts = optionValues(["-h"]);
  const command = words.filter((word, n) => word !== "-h" && words[n - 1] !== "-h");
  const [name = "", sub = ""] = command;
  if (hosts.length === 0 && !NOT_RUN.includes(name)) {
    run(binary, ["-e", "-u", process.env.REDIS_URL!, ...command]);
    return;
  }
  if (NEWER.includes(`${name} ${sub}`)) return;
  const isKnown = (...of: string[]): boolean =>
    !/^\(nil\)|^\s*$/.test(
      spawnSync(binary, ["-u", process.env.REDIS_URL!, "COMMAND", "INFO", of.join("|")], { encoding: "utf8" })
        .stdout,
    );
  need(isKnown(name), `Redis has no command ${name}`);
  if (["ACL", "CLIENT", "CLUSTER", "CONFIG"].includes(name))
    need(isKnown(name, sub), `Redis has no ${name} ${sub}`);
  if (name === "CONFIG" && sub === "SET") {
    for (const setting of command.slice(2).filter((_, n) => n % 2 === 0)) {
      const { stdout } = spawnSync(binary, ["-u", process.env.REDIS_URL!, "CONFIG", "GET", setting], {
        encoding: "utf8",
      });
      need(stdout.trim() !== "", `Redis has no setting ${setting}`);
    }
  }
}

function npm(): void {
  const prefix = optionValues(["--prefix"])[0] ?? ".";
  const folder = process.env.GUIDE_FOLDER ?? ROOT;
  need(existsSync(join(folder, prefix, "package.json")), `${prefix} has no package.json`);
  const { scripts } = JSON.parse(readFileSync(join(folder, prefix, "package.json"), "utf8"));
  const at = words.indexOf("run");
  const script = at >= 0 ? words.slice(at + 1).find((word) => !word.startsWith("-")) : words[0];
  if (script === "ci") return;
  need(script !== undefined && script in scripts, `package.json has no script ${script}`);
  if (script === "tollgate") tollgate(words.slice(words.indexOf("--") + 1));
}

/** Of what a package or the checkout has; what runs until it is stopped is only looked for. */
function npx(): void {
  const [command, file = ""] = plain([]);
  need(command === "node" && existsSync(join(ROOT, file)), `there is no ${file}`);
}

const PROGRAMS: Record<string, () => void> = {
  docker,
  kubectl,
  helm,
  kubeconform: () =>
    need(
      words.every((word) => !word.startsWith("-") || ["-strict", "-schema-location"].includes(word)),
      "an option is not known",
    ),
  systemctl,
  journalctl,
  npm,
  npx,
  "redis-cli": redisCli,
  tollgate: () => tollgate(words),
  curl: () => run(real("curl") ?? refuse("there is no curl"), ["--fail-with-body", ...words]),
  chown: () =>
    need(
      plain([])
        .slice(1)
        .every((path) => existsSync(path)),
      "there is no such file",
    ),
  "valkey-cli": () => need(/ (MIGRATESLOTS|GETSLOTMIGRATIONS)\b/.test(words.join(" ")), "not known"),
  createuser: () => need(words.join(" ") === "--pwprompt tollgate_owner", "not as archive.md has it"),
  createdb: () =>
    need(
      words.join(" ") === "--owner tollgate_owner --encoding UTF8 --template template0 tollgate",
      "not as archive.md has it",
    ),
  "apt-get": () => need(words[0] === "install" && plain([]).length > 1, "installs nothing"),
};
(PROGRAMS[program] ?? (() => refuse("no such stand-in")))();
