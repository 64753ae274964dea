import { durationMs } from "../../../src/config/setting-types.ts";
import { configOf, graceProblems, isAdminPath, type Read, text, unknownVariables } from "./settings.ts";

const UNIT = "deploy/systemd/tollgate.service";
const HAPROXY = "deploy/haproxy/haproxy.cfg";

/** Contradictions between the systemd unit and the gateway. */
export function unitProblems(read: Read): string[] {
  const unit = new Map<string, string>();
  for (const [, name = "", value = ""] of text(read, UNIT).matchAll(/^([A-Za-z]+)=(.*)$/gm))
    unit.set(name, value);
  const [program, option, script] = (unit.get("ExecStart") ?? "").split(" ");
  const variables = (unit.get("Environment") ?? "").split(" ").map((pair) => pair.split("=")[0] ?? "");
  const config = configOf(text(read, "config/tollgate.yaml"));
  const state = `%S/${unit.get("StateDirectory")}`;
  const journalIsKept = (unit.get("Environment") ?? "").split(" ").includes(`JOURNAL=${state}/journal`);
  const [, check] = (unit.get("ExecStartPre") ?? "").split(" ");
  const [head = ""] = text(read, UNIT).split("\n[Unit]");
  const prices = /^prices: ([\w-]+\/)/m.exec(text(read, "config/tollgate.yaml"))?.[1] ?? "";
  const rules: [boolean, string][] = [
    [head.includes(prices), `its head does not say where ${prices} goes, which tollgate.yaml names`],
    [program === "/usr/bin/node", "ExecStart puts something between the signal and node"],
    [option === "--disable-sigusr1", "ExecStart lets SIGUSR1 open the inspector"],
    [read((script ?? "").replace("/opt/tollgate/", "")) !== undefined, "ExecStart starts no file of ours"],
    [unit.get("ExecReload") === "/bin/kill -HUP $MAINPID", "reload is no SIGHUP"],
    [journalIsKept, "the journal is outside the StateDirectory"],
    [unit.get("WorkingDirectory") === state, "it starts outside the StateDirectory"],
    [check === "/opt/tollgate/src/node-version.js", "an old Node is not named"],
    [!unit.has("MemoryDenyWriteExecute"), "V8 cannot run with MemoryDenyWriteExecute"],
  ];
  return [
    ...rules.filter(([holds]) => !holds).map(([, problem]) => problem),
    ...unknownVariables(read, UNIT, variables),
    ...graceProblems(UNIT, unit.get("TimeoutStopSec"), config),
  ];
}

/** Contradictions between HAProxy's timeouts and the gateway's. */
export function haproxyProblems(read: Read): string[] {
  const haproxy = text(read, HAPROXY);
  const timeoutMs = (name: string): number =>
    durationMs(new RegExp(`^ *timeout ${name} (\\S+)$`, "m").exec(haproxy)?.[1]) ?? Number.NaN;
  const { server, upstream } = configOf(text(read, "config/tollgate.yaml"));
  const [head = ""] = haproxy.split("\nglobal\n");
  const variables = [...haproxy.matchAll(/\$\{(\w+)\}/g)].map(([, name = ""]) => name);
  const path = /^ *option httpchk GET (\S+)$/m.exec(haproxy)?.[1] ?? "";
  const looksMs = 2 * (durationMs(/check inter (\S+) fall 2 /.exec(haproxy)?.[1]) ?? Number.NaN);
  const retried = [...haproxy.matchAll(/^ *retry-on (.+)$/gm)].map(([, on]) => on);
  const rules: [boolean, string][] = [
    [timeoutMs("server") > upstream.totalTimeoutMs, "it gives up before the gateway does"],
    [timeoutMs("http-keep-alive") < server.keepAliveTimeoutMs, "the gateway closes idle connections first"],
    [isAdminPath(path), "it checks a path that is not there"],
    [looksMs < server.drainDelayMs, "it sees too late that a gateway drains"],
    [variables.every((name) => head.includes(`${name}=`)), "its head does not name every variable"],
    [retried.join() === "conn-failure", "it may send a generation twice"],
  ];
  return rules.filter(([holds]) => !holds).map(([, problem]) => `${HAPROXY}: ${problem}`);
}
