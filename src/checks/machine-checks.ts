import { randomUUID } from "node:crypto";
import {
  accessSync,
  closeSync,
  constants,
  existsSync,
  fdatasyncSync,
  openSync,
  readdirSync,
  rmSync,
  statfsSync,
  statSync,
  writeSync,
} from "node:fs";
import path from "node:path";
import type { Config } from "../config/config.ts";
import { type CertificateValidity, certificateValidities } from "../config/tls.ts";
import { DAY_MS, dayText } from "../domain/moments.ts";
import { diskReason } from "../durability/outbox/journal.ts";
import { FILE_BYTES_MAX } from "../durability/outbox/journal-lines.ts";
import { readRegularFile } from "../durability/process-files.ts";
import { type Check, failed, good, warning } from "./check.ts";

const LOOPBACK = /^(localhost|127\.[\d.]+|\[?::1\]?)$/;

/** @param config undefined when it is not valid @param problems its problems as text */
export function configCheck(
  config: Config | undefined,
  problems: string,
  hidden: readonly string[] = [],
): Check {
  if (!config) {
    return failed("config", `not valid:\n${problems}`, "mend the file; `tollgate config check` looks again");
  }
  const remarks = [...hidden, ...attention(config)];
  if (remarks.length === 0) return good("config", "valid");
  return warning("config", "valid", remarks.join("\n"));
}

/** Settings that are allowed, but are rarely meant in production. */
function attention(config: Config): string[] {
  const remarks: string[] = [];
  const { upstream, store, admin } = config;
  const { protocol, hostname } = new URL(upstream.url);
  if (upstream.apiKey === undefined && !LOOPBACK.test(hostname)) {
    remarks.push("UPSTREAM_API_KEY is not set, so requests to the upstream carry no credential");
  }
  if (protocol === "http:" && !LOOPBACK.test(hostname)) {
    remarks.push("upstream.url is plain http, so keys and prompts can be read on the way; use https");
  }
  if (store.fallbackStrategy === "allow") {
    remarks.push("store.fallback_strategy is allow: while Redis is unavailable, generations are not charged");
  }
  if (!LOOPBACK.test(admin.host)) {
    remarks.push(`admin.host is ${admin.host}: see that nobody outside can reach port ${admin.port}`);
  }
  return remarks;
}

const IN_MEMORY =
  "it is in memory (tmpfs), so the end of its machine or container loses charges that wait there";
const ON_DISK = "set store.journal to a folder on a persistent disk";
/** Of tmpfs and ramfs. https://man7.org/linux/man-pages/man2/statfs.2.html */
const MEMORY_FILE_SYSTEMS = new Set([0x01021994, 0x858458f6]);
const isInMemory = (folder: string): boolean => MEMORY_FILE_SYSTEMS.has(statfsSync(folder).type);

/** About what five charges take. */
const PROBE = Buffer.alloc(4096, "\n");
const NAMED_MAX = 3;

/** @param storeId of the Redis that answers now, if one does and has an id */
export function journalCheck(folder: string, storeId?: string): Check {
  const name = "journal" as const;
  const place = path.resolve(folder);
  try {
    // The gateway makes what is missing.
    let existing = place;
    while (!existsSync(existing)) existing = path.dirname(existing);
    if (!statSync(existing).isDirectory()) throw new Error(`${existing} is no folder`);
    accessSync(existing, constants.W_OK | constants.X_OK);
    if (existing === place) tryToWrite(place);
    const check =
      existing === place
        ? waitingCheck(name, place, storeId)
        : good(name, `${place} will be made at the first start`);
    return check.status === "ok" && isInMemory(existing)
      ? warning(name, `${check.message}; ${IN_MEMORY}`, ON_DISK)
      : check;
  } catch (error) {
    return failed(
      name,
      `${place} cannot be used: ${diskReason(error)}`,
      "make room on its disk, let the gateway's user write there, or set store.journal to another folder; else settlements " +
        "are lost if a gateway ends while Redis is unavailable",
    );
  }
}

/** Writes a small file to the disk, and removes it. A full disk takes new names, but no bytes. */
function tryToWrite(folder: string): void {
  const probe = path.join(folder, `${randomUUID()}.doctor`);
  const file = openSync(probe, "wx", 0o600);
  try {
    // The second write says why the first one was cut short.
    const written = writeSync(file, PROBE);
    if (written < PROBE.length) writeSync(file, PROBE, written);
    fdatasyncSync(file);
  } finally {
    closeSync(file);
    rmSync(probe, { force: true });
  }
}

function waitingCheck(name: "journal", folder: string, storeId: string | undefined): Check {
  const { files, entries, byStore, unread } = waiting(folder);
  const left = unread.length === 0 ? "" : `; not read: ${unread.sort().slice(0, NAMED_MAX).join(", ")}`;
  if (entries === 0 && unread.length === 0) return good(name, `${folder} can be written, nothing waits`);
  const found = `${entries} settlements (charges or voids) wait in ${files} files of ${folder}${left}`;
  if (entries === 0) {
    return warning(
      name,
      found,
      "gateways read regular files below 256 MiB that their user may read; check these files",
    );
  }
  const others = storeId === undefined ? [] : [...byStore].filter(([id]) => id !== storeId);
  if (others.length === 0) {
    const advice =
      "a running gateway on this folder sends them within a minute; start one if none runs, and look at Redis if one does";
    return warning(name, found, advice);
  }
  const pending = others.reduce((sum, [, count]) => sum + count, 0);
  const names = others.slice(0, NAMED_MAX).map(([id, count]) => `${count} for ${id}`);
  if (others.length > NAMED_MAX) names.push(`${others.length - NAMED_MAX} more`);
  return warning(
    name,
    `${found}; ${pending} of them for another Redis than the one that answers now (${names.join(", ")})`,
    "point REDIS_URL to the Redis whose `HGET tg:meta id` says that; no other is sent them",
  );
}

function waiting(folder: string) {
  const unread: string[] = [];
  let files = 0;
  let entries = 0;
  const byStore = new Map<string, number>();
  for (const file of readdirSync(folder).filter((each) => each.endsWith(".ndjson"))) {
    const lines = linesOf(path.join(folder, file));
    if (!lines) {
      unread.push(file);
      continue;
    }
    if (lines.length > 0) files++;
    entries += lines.length;
    for (const id of lines.map(storeOf)) if (id !== undefined) byStore.set(id, (byStore.get(id) ?? 0) + 1);
  }
  return { files, entries, byStore, unread };
}

/** Undefined for what gateways do not open, either: what is no regular file, a link, or too large. */
function linesOf(file: string): string[] | undefined {
  try {
    return readRegularFile(file, FILE_BYTES_MAX)
      .split("\n")
      .filter((line) => line !== "");
  } catch (error) {
    // Its gateway has ended meanwhile, or another one has taken it over.
    return (error as NodeJS.ErrnoException).code === "ENOENT" ? [] : undefined;
  }
}

/** The store of a line; undefined if it names none, as those of early releases, or is cut. */
function storeOf(line: string): string | undefined {
  try {
    const { store } = JSON.parse(line) as { store?: unknown };
    return typeof store === "string" ? store : undefined;
  } catch {
    return undefined;
  }
}

const CERTIFICATES = "certificates";
/** As the alert TollgateCertificateExpires. */
const WARNING_MS = 14 * DAY_MS;

export function certificatesCheck(config: Config, nowMs: number): Check {
  const all = certificateValidities(config);
  const first = all.toSorted((a, b) => a.expiryMs - b.expiryMs)[0];
  if (!first) return good(CERTIFICATES, "the config names none");
  const future = all.filter(({ fromMs }) => fromMs > nowMs);
  const due = all.filter(({ expiryMs }) => expiryMs < nowMs + WARNING_MS);
  if (future.length === 0 && due.length === 0)
    return good(CERTIFICATES, `valid; first ${expires(first, nowMs)}`);
  const found = [
    ...due.map((one) => expires(one, nowMs)),
    ...future.map(({ setting, fromMs }) => `${setting} is not valid before ${dayText(fromMs)}`),
  ].join("\n");
  const advice =
    "renew it, and put the new file at the same place: a running gateway takes it without a restart (store.tls_ca needs one)";
  const unusable = future.length > 0 || first.expiryMs <= nowMs;
  return unusable ? failed(CERTIFICATES, found, advice) : warning(CERTIFICATES, found, advice);
}

function expires({ setting, expiryMs }: CertificateValidity, nowMs: number): string {
  const days = Math.floor((expiryMs - nowMs) / DAY_MS);
  if (expiryMs <= nowMs) return `${setting} has expired on ${dayText(expiryMs)}`;
  return `${setting} expires on ${dayText(expiryMs)}, in ${days} days`;
}

/** Above it, a gateway has room for thousands of clients beside its connections to Redis and the upstream. */
const OPEN_FILES_WANTED = 4096;

/** @param limit of files and sockets @param whose the process in words */
export function descriptorsCheck(limit: number, whose: string): Check {
  const found = `${whose} may open ${limit} files and sockets`;
  if (limit >= OPEN_FILES_WANTED) return good("descriptors", found);
  return warning(
    "descriptors",
    `${found}, so it takes few clients at a time`,
    "raise the limit to 16384 or more: LimitNOFILE of a systemd unit, ulimits of a container, ulimit -n of a shell",
  );
}

/** @param count valid keys that came with an X-Forwarded-For from an address that is not trusted; undefined if no gateway says */
export function proxiesCheck(count: number | undefined): Check {
  const name = "proxies";
  if (count === undefined)
    return good(name, "no gateway answers at the admin port, so nothing is known of proxies");
  if (count === 0) return good(name, "no X-Forwarded-For came from an address that is not trusted");
  return warning(
    name,
    `${count} good keys came with an X-Forwarded-For from an address that is not in server.trust_proxy`,
    "put the load balancer's address or range into server.trust_proxy; the gateway's log names it (peer)",
  );
}
