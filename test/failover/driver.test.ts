import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { Redis } from "ioredis";
import { describe, expect, test } from "vitest";
import { soon } from "../support/soon.ts";
import { type Driver, startDriver, type Topology } from "./driver.ts";

const PARTITION = 5;
const nameOf = (at: number): string => `{p05}:entry-${at}`;

async function withDriver(topology: Topology, work: (driver: Driver) => Promise<void>): Promise<void> {
  const folder = await mkdtemp(join(tmpdir(), "tollgate-failover-"));
  const driver = await startDriver(topology, { folder });
  try {
    await work(driver);
  } finally {
    await driver.stop();
    await rm(folder, { recursive: true, force: true });
  }
}

const primary = async (driver: Driver): Promise<Redis> => (await driver.nodes()).of(PARTITION);

/** More than a shorter append-only file lacks. */
async function fill(driver: Driver): Promise<void> {
  const redis = await primary(driver);
  for (let at = 0; at < 200; at++) await redis.set(nameOf(at), "1");
}

/** Writes one entry after the other. @returns which was the last that was written */
async function writeUntilClosed(redis: Redis): Promise<number> {
  // A write that is under way when the primary is killed may be made again, for the same client finds it again.
  const closed = new Promise<false>((resolve) => void redis.once("close", () => resolve(false)));
  const isWritten = (at: number): Promise<boolean> => redis.set(nameOf(at), "1").then(Boolean, () => false);
  let last = 199;
  while (await Promise.race([closed, isWritten(last + 1)])) last++;
  return last;
}

describe.concurrent("faults of a campaign", () => {
  test.for<[Topology, primaries: number]>([
    ["server", 1],
    ["trio", 1],
    ["cluster", 3],
  ])("%s: a store is read from %d primaries", ([topology, primaries]) =>
    withDriver(topology, async (driver) => {
      const nodes = await driver.nodes();
      expect(nodes.all()).toHaveLength(primaries);
      await nodes.ofName("tg:meta").set("tg:meta", "1");
      expect(await Promise.all(nodes.all().map((redis) => redis.exists("tg:meta").catch(() => 0)))).toContain(
        1,
      );
    }),
  );

  test("trio: when replicas lag, what they had not received is gone after the failover", () =>
    withDriver("trio", async (driver) => {
      await fill(driver);
      const old = await primary(driver);
      const striking = driver.strike("lag, kill", PARTITION);
      const last = await writeUntilClosed(old);
      await striking;
      await soon(async () => expect(await primary(driver)).not.toBe(old));
      expect(await (await primary(driver)).mget(nameOf(0), nameOf(last))).toEqual(["1", null]);
    }));

  test("cluster: a primary that is back before the failover has lost its last writes, and its replica has lost them too", () =>
    withDriver("cluster", async (driver) => {
      await fill(driver);
      const striking = driver.strike("loss", PARTITION);
      const last = await writeUntilClosed(await primary(driver));
      const strike = await striking;
      await strike.end();
      await driver.healthy();
      expect(await (await primary(driver)).mget(nameOf(0), nameOf(last))).toEqual(["1", null]);
    }));
});
