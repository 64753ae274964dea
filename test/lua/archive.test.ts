import { afterAll, beforeAll, beforeEach, expect, inject, test } from "vitest";
import { cliActor } from "../../src/records/actor.ts";
import {
  accountNames,
  archiveNames,
  keyNames,
  partitionNames,
  requestName,
} from "../../src/records/names.ts";
import { createScriptRunner, itemOf, type ScriptRunner, scriptsOf } from "../../src/redis/script-runner.ts";
import { type ArchivedCall, archived } from "../../src/scripts/archive.ts";
import type { Generation } from "../../src/scripts/holds.ts";
import { change, issue } from "../../src/scripts/keys.ts";
import type { Run } from "../../src/scripts/script-definition.ts";
import { collect } from "../../src/scripts/tasks.ts";
import { createClient } from "../support/client.ts";
import {
  createStage,
  openConnection,
  RETENTION_MS,
  type Stage,
  type TestConnection,
} from "../support/store.ts";
import { plantForTest } from "./mutant-client.ts";
import { ARCHIVE_MUTANTS } from "./mutants.ts";

// Records that the store keeps until an archive has them: ended requests, and which accounts and keys have changed.

let connection: TestConnection;
let stage: Stage;
beforeAll(async () => {
  connection = await openConnection();
});
afterAll(() => connection.close());
beforeEach(() => {
  stage = createStage(connection);
});

const GENERATION = "generation-1";
const names = () => archiveNames(stage.partition);
const useArchive = () => stage.redis.hset(names().archive, { generation: GENERATION, archive: "a" });
const noted = () => stage.redis.hgetall(names().changed);

/** Runs scripts at the stage's time. */
const runOf =
  ({ send }: ScriptRunner): Run =>
  async (script, call) => {
    const [reply] = await send(script, [itemOf(script, call, String(stage.clock.nowMs))]);
    if (reply instanceof Error) throw reply;
    return script.read(reply!, call);
  };

/** By a copier that has seen what was noted last, and has announced this. */
async function commit(
  call: Partial<ArchivedCall>,
  run: Run = runOf(scriptsOf(stage.redis)),
  isAnnounced = true,
) {
  const { newest, batch = "0" } = await stage.redis.hgetall(names().archive);
  const { batch: next = batch, noted = { batch } } = call;
  if (isAnnounced) await stage.redis.hset(names().archive, "writing", `${next} after ${noted.batch}`);
  const { outcome } = await run(archived, {
    partition: stage.partition,
    generation: GENERATION,
    newest: undefined,
    batch: Number(batch),
    noted: { newest, batch: Number(batch) },
    lookedUntil: 0,
    requests: [],
    changed: [],
    ...call,
  });
  return outcome;
}

async function givenEnded(end: "finished" | "void" = "finished"): Promise<Generation> {
  const generation = stage.request(await stage.givenKey());
  if (end === "finished") {
    await stage.givenTask(generation);
    await stage.observe(generation, "completed");
  } else {
    await stage.admit(generation);
    await stage.void(generation, "refused");
  }
  return generation;
}

const collectNow = ({ requestId }: Generation, run: Run = runOf(scriptsOf(stage.redis))) => {
  stage.clock.nowMs += 2 * RETENTION_MS;
  const { partition } = stage;
  return run(collect, { partition, requestId, taskId: undefined, retentionMs: RETENTION_MS }).then(
    ({ outcome }) => outcome,
  );
};

test("a store without an archive notes no changes, and collects as before", async () => {
  const generation = await givenEnded();
  const { keyId, partition } = generation.key;
  await runOf(scriptsOf(stage.redis))(change, {
    actor: cliActor(),
    keyId,
    partition,
    fields: { tier: "enterprise" },
  });
  expect(await noted()).toEqual({});
  expect(await collectNow(generation)).toBe("collected");
});

/** Findings of each check of the tests below, with scripts that may be mutants. */
async function findings(run: Run) {
  await useArchive();
  const key = await (async () => {
    const known = await stage.givenKey({ credits: 0 });
    await stage.redis.del(names().changed);
    const fresh = {
      ...known,
      keyId: `${known.keyId}2`,
      names: { ...known.names, ...keyNames(known.partition, `${known.keyId}2`) },
    };
    await run(issue, {
      actor: cliActor(),
      key: fresh,
      tier: "standard",
      digest: "d",
      limits: {},
      credits: 0,
      reference: "r",
    });
    return fresh;
  })();
  const issued = await noted();
  await run(change, {
    actor: cliActor(),
    keyId: key.keyId,
    partition: key.partition,
    fields: { tier: "enterprise" },
  });
  const changed = await noted();
  const what = `key ${key.keyId}`;
  const commitBy = (call: Partial<ArchivedCall>) => commit(call, run);
  await commitBy({
    changed: [
      { what, changes: "1" },
      { what: `account ${key.accountId}`, changes: "1" },
    ],
  });
  const stale = await noted();
  await commitBy({ changed: [{ what, changes: "2" }] });
  const empty = await noted();

  const [finished, voided] = [await givenEnded(), await givenEnded("void")];
  const { requestId } = finished;
  const early = await collectNow(finished, run);
  const other = await commitBy({ generation: "generation-0", requests: [{ requestId, state: "finished" }] });
  const afterOther = await collectNow(finished, run);
  await commitBy({
    newest: "5-0",
    batch: 3,
    lookedUntil: 7,
    requests: [
      { requestId, state: "finished" },
      { requestId: voided.requestId, state: "finished" },
      { requestId: "req_gone", state: "finished" },
    ],
  });
  const gone = await stage.redis.exists(requestName(stage.partition, "req_gone"));
  const wrongState = await collectNow(voided, run);
  const unseen = [];
  for (const noted of [
    { newest: "5-0", batch: 2 },
    { newest: "4-0", batch: 3 },
    { newest: undefined, batch: 3 },
  ]) {
    const requests = [{ requestId: voided.requestId, state: "void" }];
    unseen.push(await commitBy({ newest: "9-0", batch: 9, noted, lookedUntil: 9, requests }));
  }
  unseen.push(
    await commit({ batch: 8, requests: [{ requestId: voided.requestId, state: "void" }] }, run, false),
  );
  const afterUnseen = await collectNow(voided, run);
  const archivedNow = await collectNow(finished, run);
  await commitBy({ lookedUntil: 8, requests: [{ requestId: voided.requestId, state: "void" }] });
  await stage.redis.hset(names().archive, "generation", "generation-2");
  const replaced = await collectNow(voided, run);
  await stage.redis.hset(names().archive, "generation", GENERATION);
  const last = await collectNow(voided, run);
  const record = await stage.redis.hgetall(names().archive);
  const id = (noted: Record<string, string>) =>
    Object.fromEntries(Object.entries(noted).map(([name, count]) => [name.split(" ")[0], count]));
  return {
    issued: id(issued),
    changed: id(changed),
    stale: id(stale),
    empty,
    early,
    other,
    afterOther,
    gone,
    wrongState,
    unseen,
    afterUnseen,
    archivedNow,
    replaced,
    last,
    record,
    left: await stage.redis.zcard(partitionNames(stage.partition).done),
    listed: issued[`account ${key.accountId}`] === "1" && issued[what] === "1",
    account: await stage.redis.exists(accountNames(stage.partition, key.accountId).account),
  };
}

const RIGHT = {
  issued: { account: "1", key: "1" },
  changed: { account: "1", key: "2" },
  // A change after the read is not lost.
  stale: { key: "2" },
  empty: {},
  early: "unarchived",
  other: "other",
  afterOther: "unarchived",
  gone: 0,
  wrongState: "unarchived",
  // Another batch was noted last, or announced.
  unseen: ["unseen", "unseen", "unseen", "unseen"],
  afterUnseen: "unarchived",
  archivedNow: "collected",
  replaced: "unarchived",
  last: "collected",
  record: {
    generation: GENERATION,
    archive: "a",
    newest: "5-0",
    batch: "3",
    writing: "3 after 3",
    looked_until: "8",
  },
  left: 0,
  listed: true,
  account: 1,
};

// Guarantee: COLLECT deletes no request, and no change is forgotten, before the archive has it as it is.
test("requests and changes stay until the archive has them as they are", async () => {
  expect(await findings(runOf(scriptsOf(stage.redis)))).toEqual(RIGHT);
});

test("what is collected waits behind what the archive has not got", async () => {
  const [first, second] = [await givenEnded(), await givenEnded()];
  await useArchive();
  stage.clock.nowMs += 2 * RETENTION_MS;
  expect(await stage.sweeps.collect(stage.partition, RETENTION_MS, 1)).toEqual({ looked: 0, collected: 0 });
  const requests = [first, second].map(({ requestId }) => ({ requestId, state: "finished" }));
  expect(await commit({ requests })).toBe("archived");
  expect(await stage.sweeps.collect(stage.partition, RETENTION_MS, 10)).toEqual({ looked: 2, collected: 2 });
});

test.each(ARCHIVE_MUTANTS)("a script is found in which $what", async (mutant) => {
  const folder = await plantForTest(mutant);
  const redis = createClient(inject("redisUrl"), 10_000);
  try {
    await redis.connect();
    expect(await findings(runOf(createScriptRunner(redis, { folder })))).not.toEqual(RIGHT);
  } finally {
    redis.disconnect();
  }
});
