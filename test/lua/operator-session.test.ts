import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { Redis } from "ioredis";
import { afterAll, beforeAll, expect, test } from "vitest";
import { LastConfirmedFile } from "../../src/durability/losses/last-confirmed.ts";
import { createOperatorSession, type OperatorSession } from "../../src/operations/access/operator-session.ts";
import { partitionNames } from "../../src/records/names.ts";
import { OperatorError } from "../../src/records/operator-error.ts";
import { createLogger } from "../../src/telemetry/log.ts";
import { givenRedis, type TestRedis } from "../support/store-stage.ts";

// The management API's own connections: which errors are the store's, and which are not.

let server: TestRedis;
let session: OperatorSession;
beforeAll(async () => {
  server = await givenRedis();
  session = createOperatorSession({ redisUrl: server.url, partitions: 4, allowNoPersistence: true });
});
afterAll(async () => {
  session.close();
  await server.stop();
});

const connection = (): Promise<Redis> => session.run(async (nodes) => nodes.of(0));

// Guarantee: nobody looks for a fault of this program in Redis, and other calls keep their connection.
test.each([new TypeError("x is undefined"), new RangeError("Invalid time value"), new Error("a bug")])(
  "a fault of this program stays what it is, and the connection stays: %s",
  async (fault) => {
    const before = await connection();
    await expect(session.run(() => Promise.reject(fault))).rejects.toBe(fault);
    expect(await connection()).toBe(before);
  },
);

test("a mistake of an operator stays what it is", async () => {
  const mistake = new OperatorError("there is no such account", "not_found");
  await expect(session.run(() => Promise.reject(mistake))).rejects.toBe(mistake);
});

test("what Redis answers and what its connection says is the store's, and it is connected anew", async () => {
  const unavailable = { refusal: { name: "store_unavailable" } };
  const before = await connection();
  await expect(session.run((nodes) => nodes.of(0).call("NO_SUCH_COMMAND"))).rejects.toMatchObject(
    unavailable,
  );
  const after = await connection();
  expect(after).not.toBe(before);
  await expect(
    session.run(async (nodes) => {
      nodes.of(0).disconnect();
      return nodes.of(0).get("x");
    }),
  ).rejects.toMatchObject(unavailable);
  const closed = await connection();
  expect(closed).not.toBe(after);
  await expect(
    session.run(async (nodes) => {
      const id = await nodes.of(0).client("ID");
      return Promise.all([nodes.of(0).blpop("nothing", 0), server.client.client("KILL", "ID", id)]);
    }),
  ).rejects.toMatchObject({ ...unavailable, message: expect.stringContaining("closed the connection") });
  expect(await connection()).not.toBe(closed);
});

// Guarantee: the command line and the management API know the same of what a store has lost.
test("nothing is written where the files of gateways know an entry that the store lacks", async () => {
  const folder = await mkdtemp(join(tmpdir(), "tollgate-session-"));
  const storeId = (await server.client.hget("tg:meta", "id"))!;
  const known = new LastConfirmedFile(folder, createLogger("silent"));
  const entry = { id: "5-0", accountId: "acme", kind: "charge", credits: 10, reference: "", requestId: "r" };
  known.keep(storeId, partitionNames(0).ledger, entry);
  await known.save();
  const knowing = createOperatorSession({
    redisUrl: server.url,
    partitions: 4,
    allowNoPersistence: true,
    journal: folder,
  });
  const grantOn = (one: OperatorSession) =>
    one.write(async (nodes) => {
      nodes.requireWritable?.([nodes.of(0)]);
      return "written";
    });
  await expect(grantOn(knowing)).rejects.toThrow("older than what it confirmed");
  expect((await grantOn(session)).result).toBe("written");
  knowing.close();
  await rm(folder, { recursive: true });
});

test("a store of a layout that is not served is the store's", async () => {
  await server.client.hset("tg:meta", "layout", "2");
  const other = createOperatorSession({ redisUrl: server.url, partitions: 4, allowNoPersistence: true });
  await expect(other.run(async () => 1)).rejects.toMatchObject({
    refusal: { name: "store_unavailable" },
    message: expect.stringContaining("the store has layout 2"),
  });
  await server.client.hset("tg:meta", "layout", "1");
  other.close();
});
