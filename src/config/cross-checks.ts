import { Pointer } from "typebox/value";
import { isObject } from "../domain/json.ts";
import { holdsPassword } from "../domain/redis-address.ts";
import { headerProblem } from "../upstream/gateway-headers.ts";
import { packageProblems } from "./sections/packages.ts";
import { durationMs } from "./setting-types.ts";
import type { BrokenRule } from "./validate.ts";

const ANY_HOST = new Set(["0.0.0.0", "::"]);

/** Rules over several settings. Invalid values are skipped: they have their own problem. */
export function crossChecks(data: unknown): BrokenRule[] {
  return [
    ...notLonger(data, ["upstream", "headers_timeout"], ["upstream", "total_timeout"]),
    ...notLonger(data, ["upstream", "connect_timeout"], ["upstream", "total_timeout"]),
    ...separateListeners(data),
    ...uploadShare(data),
    ...unreplaced(data),
    ...upstreamHeaders(data),
    ...packageProblems(at(data, ["packages"])),
    ...relayWithoutAddress(data),
  ];
}

/** Placeholders that the gateway does not replace. */
export const UNREPLACED = /\$\{[A-Za-z_][^}]{0,100}\}/;

/** Repeats the name only, never the rest of the value. */
function unreplaced(value: unknown, keys: readonly string[] = []): BrokenRule[] {
  if (typeof value === "string") {
    const found = UNREPLACED.exec(value)?.[0];
    if (found === undefined) return [];
    return [
      { keys, message: `has ${found}, but variables are not replaced in settings; write the value itself` },
    ];
  }
  if (typeof value !== "object" || value === null) return [];
  return Object.entries(value).flatMap(([key, part]) => unreplaced(part, [...keys, key]));
}

function notLonger(data: unknown, part: readonly string[], whole: readonly string[]): BrokenRule[] {
  const partMs = durationMs(at(data, part));
  const wholeMs = durationMs(at(data, whole));
  if (partMs === undefined || wholeMs === undefined || partMs <= wholeMs) return [];
  const message = `must not be longer than ${whole.join(".")}: ${at(data, part)} exceeds ${at(data, whole)}`;
  return [{ keys: part, message }];
}

function separateListeners(data: unknown): BrokenRule[] {
  const port = at(data, ["admin", "port"]);
  if (typeof port !== "number" || port === 0 || port !== at(data, ["server", "port"])) return [];
  const hosts = [at(data, ["admin", "host"]), at(data, ["server", "host"])].map(String);
  if (hosts[0] !== hosts[1] && !hosts.some((host) => ANY_HOST.has(host))) return [];
  return [{ keys: ["admin", "port"], message: `must differ from server.port: both are ${port}` }];
}

function uploadShare(data: unknown): BrokenRule[] {
  const perKey = at(data, ["server", "uploads_per_key"]);
  const total = at(data, ["upstream", "upload_connections"]);
  if (typeof perKey !== "number" || typeof total !== "number" || perKey <= total) return [];
  const message = `must not be larger than upstream.upload_connections: ${perKey} exceeds ${total}`;
  return [{ keys: ["server", "uploads_per_key"], message }];
}

const SECRET_HEADER = /api[-_]?key|secret|passw|auth|credential|token$/i;

function upstreamHeaders(data: unknown): BrokenRule[] {
  const headers = at(data, ["upstream", "headers"]);
  const authHeader = at(data, ["upstream", "auth_header"]);
  if (!isObject(headers)) return [];
  return Object.entries(headers).flatMap(([name, value]) => {
    const keys = ["upstream", "headers", name];
    const isCredential = typeof authHeader === "string" && name.toLowerCase() === authHeader.toLowerCase();
    if (isCredential || SECRET_HEADER.test(name)) {
      const message =
        "must hold no credential; set UPSTREAM_API_KEY in the environment, and upstream.auth_header to the header's name";
      return [{ keys, message }];
    }
    const message = typeof value === "string" ? headerProblem(name, value) : undefined;
    return message === undefined ? [] : [{ keys, message }];
  });
}

/** Values of `webhooks` that do nothing without another of its settings, which was forgotten then. */
function relayWithoutAddress(data: unknown): BrokenRule[] {
  const { relay, callbacks, any_origin: anyOrigin, public_url: publicUrl } = objectAt(data, ["webhooks"]);
  const address =
    "to the address at which the upstream reaches the gateways, such as https://api.example.com";
  const needs = (setting: string, message: string): BrokenRule => ({ keys: ["webhooks", setting], message });
  const problems: BrokenRule[] = [];
  if (relay === "all" && !publicUrl)
    problems.push(needs("relay", `is all, but no callback is relayed: set webhooks.public_url ${address}`));
  if (callbacks === "all" && !publicUrl)
    problems.push(
      needs("callbacks", `is all, but no callBackUrl is relayed: set webhooks.public_url ${address}`),
    );
  if (anyOrigin === true && callbacks !== "all")
    problems.push(needs("any_origin", "has no effect: set webhooks.callbacks to all, or leave it out"));
  return problems;
}

/** Callbacks are known by tokens that only the key can make. */
export function webhookKeyProblem(data: unknown, key: string | undefined): BrokenRule[] {
  const keys = ["webhooks", "public_url"];
  if (key !== undefined || !at(data, keys)) return [];
  return [
    { keys, message: "needs WEBHOOK_SECRET_KEY in the environment; `openssl rand -base64 32` makes one" },
  ];
}

export function fileSecrets(data: unknown): BrokenRule[] {
  const url = at(data, ["store", "redis_url"]);
  if (typeof url !== "string" || !holdsPassword(url)) return [];
  const message = "must hold no password; set REDIS_URL in the environment to the address with its password";
  return [{ keys: ["store", "redis_url"], message }];
}

function objectAt(data: unknown, keys: readonly string[]): Record<string, unknown> {
  const found = at(data, keys);
  return isObject(found) ? found : {};
}

function at(data: unknown, keys: readonly string[]): unknown {
  return Pointer.Get(data, `/${keys.join("/")}`);
}
