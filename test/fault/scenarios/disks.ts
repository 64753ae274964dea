import { execFile } from "node:child_process";
import { closeSync, mkdirSync, openSync, readFileSync, rmSync, writeSync } from "node:fs";
import { join } from "node:path";
import { promisify } from "node:util";
import { type Customer, generate, poll } from "../client.ts";
import { type GatewayProcess, metricOf, outboxEntries } from "../gateways.ts";
import type { History } from "../history.ts";
import { inParallel } from "../random.ts";
import { createWorld, eventually, type RunOptions, type World } from "../world.ts";
import type { Scenario } from "./scenario.ts";

interface DisksSize {
  /** Requests whose settlements are in a journal that another gateway on the folder has looked at; 0: none. */
  requestsShared?: number;
  /** Requests whose settlements meet a full disk, in each of the three parts. */
  requestsEach: number;
  /** Requests whose log lines do: more than a process keeps in memory. */
  lines: number;
}

const run = promisify(execFile);
const DISK_BYTES = 256 * 1024;
const FILLER = "filler";
const GENERATION_MS = 500;
const WAIT_MAX_MS = 20_000;
const DROPPED = "tollgate_log_lines_dropped_total";

/**
 * The disk of the journal is full, then that of the log. Both are memory file systems of some KB, which need the right
 * to mount: without it nothing is filled, and the figures say so.
 */
export const disks: Scenario<DisksSize> = {
  name: "disks",
  title: ({ requestsEach, lines, requestsShared = 0 }) =>
    `${requestsShared} settlements wait in a journal whose folder another gateway looks at, and their gateway is killed; the journal's disk is full as ${requestsEach} settlements wait and are sent, and again as their gateway is killed; there is ` +
    `room again for ${requestsEach} of a killed gateway; the log's disk is full for ${lines} lines`,
  full: { requestsEach: 60, lines: 20_000, requestsShared: 60 },
  short: { requestsEach: 15, lines: 5000, requestsShared: 15 },
  run: runDisks,
};

async function runDisks(options: RunOptions, size: DisksSize): Promise<History> {
  const { requestsEach, lines, requestsShared = 0 } = size;
  const world = await createWorld(options, 1, { commandTimeoutMs: 500 });
  const small = ["journal-disk", "log-disk"].map((name) => join(options.folder, name)) as [string, string];
  const mounted: string[] = [];
  try {
    const customers = await Promise.all(Array.from({ length: 4 }, () => world.givenCustomer()));
    if (requestsShared > 0) await shareFolder(world, customers, requestsShared);
    if (lines === 0) return await world.finish();
    for (const folder of small) if (await mountSmall(folder)) mounted.push(folder);
    if (mounted.length < small.length) world.note("no right to mount: no disk was filled");
    else {
      await fillJournal(world, customers, small[0], requestsEach);
      options.progress("the journal's disk was full");
      await fillLog(world, customers[0]!, small[1], lines);
      options.progress("the log's disk was full");
    }
    return await world.finish();
  } finally {
    await world.stop();
    for (const folder of mounted) await run("umount", ["-l", folder]);
  }
}

async function mountSmall(folder: string): Promise<boolean> {
  mkdirSync(folder, { recursive: true });
  return run("mount", ["-t", "tmpfs", "-o", `size=${DISK_BYTES}`, "tmpfs", folder]).then(
    () => true,
    () => false,
  );
}

/** Writes until the disk takes no more. */
function fill(folder: string): void {
  const file = openSync(join(folder, FILLER), "a");
  try {
    for (const bytes of [4096, 1]) {
      for (let left = DISK_BYTES; left > 0; left -= bytes) writeSync(file, Buffer.alloc(bytes));
    }
    throw new Error(`${folder} never becomes full`);
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== "ENOSPC") throw error;
  } finally {
    closeSync(file);
  }
}

const makeRoom = (folder: string): void => rmSync(join(folder, FILLER));

/** Requests whose BINDs all wait, since the link of their gateway is cut as the first one comes. */
async function leaveWaiting(
  world: World,
  gateway: GatewayProcess,
  customers: readonly Customer[],
  count: number,
): Promise<void> {
  let isCut = false;
  world.proxy.steer({
    command({ gateway: name, script }) {
      if (name !== gateway.name) return undefined;
      if (script === "bind") isCut = true;
      return isCut ? "freeze" : undefined;
    },
  });
  await inParallel(count, count, async (at) => {
    const wish = { lifeMs: 1, fails: at % 3 === 0, delayMs: GENERATION_MS };
    world.client.push(await generate(gateway, customers[at % customers.length]!, wish));
  });
  if ((await outboxEntries(gateway)) === 0) world.note("not reached", "settlements wait");
}

/** A gateway that starts looks at the journal of one that lives and has nothing in it yet. */
async function shareFolder(world: World, customers: readonly Customer[], count: number): Promise<void> {
  const first = await world.startIn(1, { sweeps: false });
  await world.startIn(2, { sweeps: false });
  await leaveWaiting(world, first, customers, count);
  world.kill(1, "with settlements in a shared folder");
  world.kill(2, "that has looked at them");
  world.proxy.steer({});
  await world.startIn(1, { sweeps: false });
}

async function fillJournal(
  world: World,
  customers: readonly Customer[],
  folder: string,
  count: number,
): Promise<void> {
  // The gateway that stays sweeps; this one only writes to the disk.
  const slot = 1;
  const journal = join(folder, "journal");
  const first = await world.startIn(slot, { journal, sweeps: false });
  fill(folder);
  world.note("journal's disk full");
  await leaveWaiting(world, first, customers, count);
  world.proxy.steer({});
  if (!(await eventually(WAIT_MAX_MS, async () => (await outboxEntries(first)) === 0)))
    world.note("not reached", "settlements in memory are sent");
  await leaveWaiting(world, first, customers, count);
  world.kill(slot, "with settlements in its memory alone");
  world.proxy.steer({});
  makeRoom(folder);
  world.note("room in the journal's disk");
  const second = await world.startIn(slot, { journal, sweeps: false });
  await leaveWaiting(world, second, customers, count);
  world.kill(slot, "with settlements in its journal");
  world.proxy.steer({});
  await world.startIn(slot, { journal, sweeps: false });
}

/** The gateway goes on answering; what its log cannot take is counted. */
async function fillLog(world: World, customer: Customer, folder: string, lines: number): Promise<void> {
  const slot = 2;
  const log = join(folder, "log.ndjson");
  const gateway = await world.startIn(slot, { log, sweeps: false, logPolls: "info" });
  fill(folder);
  world.note("log's disk full");
  const text = (): string => readFileSync(log, "utf8");
  const before = text().split("\n").length;
  await inParallel(lines, 32, async (at) => {
    const event = await poll(gateway, customer, `nobodys_${at}`);
    if (event.status === 0) world.client.push(event);
  });
  const event = await generate(gateway, customer, { lifeMs: 1 });
  world.client.push(event);
  if (event.status !== 200) world.note("not reached", `a generation with a full log: ${event.status}`);
  const dropped = await metricOf(gateway, DROPPED);
  if (dropped === 0) world.note("not reached", "dropped log lines are counted");
  makeRoom(folder);
  world.note("room in the log's disk", `${dropped} lines dropped`);
  // Settlements that waited in memory are written, and so are later ones.
  const isWritten = await eventually(WAIT_MAX_MS, async () => text().split("\n").length > before);
  if (!isWritten) world.note("not reached", "the log goes on when there is room");
  await world.gateways[slot]!.stop();
  world.gateways[slot] = undefined;
  world.note("log lines", `${text().split("\n").length} written`);
}
