import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, expect, test } from "vitest";
import { createOperatorSession } from "../../src/operations/access/operator-session.ts";
import { grantCredits } from "../../src/operations/credits/grants.ts";
import { rotateKey } from "../../src/operations/keys/change-key.ts";
import { findKey } from "../../src/operations/keys/keys.ts";
import { cliActor } from "../../src/records/actor.ts";
import { digestOf, indexName } from "../../src/records/names.ts";
import { oneNode } from "../../src/redis/store-facts.ts";
import { runHere } from "../support/cli.ts";
import { givenKey, givenPair, type Pair } from "../support/store-stage.ts";

let pair: Pair;
let folder: string;
beforeEach(async () => {
  pair = await givenPair();
  folder = mkdtempSync(join(tmpdir(), "tollgate-cli-replicas-"));
  writeFileSync(join(folder, "tollgate.yaml"), "store: { confirm_replicas: 1 }\n");
});
afterEach(async () => {
  pair.replica.resume();
  await pair.stop();
  rmSync(folder, { recursive: true });
});

/** Runs a command on the pair, whose configuration asks for one replica. */
async function tollgate(...args: string[]) {
  const env = { REDIS_URL: pair.primary.url, TOLLGATE_CONFIG: join(folder, "tollgate.yaml") };
  const { code, stdout, stderr } = await runHere([...args, "--json"], env);
  return { code, stderr, json: stdout === "" ? undefined : JSON.parse(stdout) };
}

// Guarantee: an acknowledged key is on two Redis machines.
test("a key that is made while the replica is there is confirmed, and on the replica", async () => {
  const { code, json, stderr } = await tollgate("keys", "create", "--credits", "10");
  expect({ code, stderr, confirmed: json.confirmed }).toEqual({ code: 0, stderr: "", confirmed: true });
  expect(await pair.replica.client.get(indexName(digestOf(json.key)))).toBe(
    `${json.key_id} ${json.account_id}`,
  );
});

test("a grant and a revocation that the replica lacks say so, and repeating them confirms the first", async () => {
  const { accountId, keyId } = await givenKey(pair.primary.client);
  const grant = () => tollgate("credits", "grant", accountId, "5", "--reference", "invoice 1");
  const revoke = () => tollgate("keys", "revoke", keyId);
  pair.replica.pause();
  for (const [write, outcome] of [
    [grant, "recharged"],
    [revoke, "revoked"],
    [grant, "duplicate"],
  ] as const) {
    const { code, json, stderr } = await write();
    expect({ code, ...json }).toMatchObject({ code: 2, outcome, confirmed: false });
    expect(stderr).toContain("Not confirmed");
    expect(stderr).toContain("Repeat it");
  }
  pair.replica.resume();
  for (const [write, outcome] of [
    [grant, "duplicate"],
    [revoke, "already_revoked"],
  ] as const) {
    const { code, json, stderr } = await write();
    expect({ code, stderr, ...json }).toMatchObject({ code: 0, stderr: "", outcome, confirmed: true });
  }
});

// Guarantee: who repeats a rotation learns whether the new key is safe.
test("a repeated rotation calls the new key valid only once the replica has it", async () => {
  const { client } = pair.primary;
  const { keyId } = await givenKey(client);
  pair.replica.pause();
  await rotateKey(oneNode(client), await findKey(oneNode(client), keyId), 0, cliActor());
  const repeat = () => tollgate("keys", "rotate", keyId);
  expect(await repeat()).toMatchObject({
    code: 1,
    stderr: expect.stringContaining("too few replicas have that"),
  });
  pair.replica.resume();
  expect(await repeat()).toMatchObject({ code: 1, stderr: expect.stringContaining("nothing is changed") });
});

// Guarantee: a repeated import grants once, whatever a failover has lost.
test("an import grants nothing before the replica has the key's index, and its repeat grants once", async () => {
  const token = `sk_import_${"x".repeat(20)}`;
  const run = () => tollgate("keys", "import", token, "--account", "acme", "--credits", "7");
  pair.replica.pause();
  const refused = await run();
  expect(refused).toMatchObject({ code: 1, json: undefined });
  expect(refused.stderr).toContain("nothing is granted");
  pair.replica.resume();
  const first = await run();
  expect(first).toMatchObject({ code: 0, json: { confirmed: true } });
  expect(await run()).toMatchObject({ code: 0, json: { key_id: first.json.key_id, confirmed: true } });
  const shown = await tollgate("credits", "show", "acme");
  expect(JSON.stringify(shown.json)).toContain('"balance":7');
});

test("an action of the console says whether replicas have it", async () => {
  const { accountId } = await givenKey(pair.primary.client);
  const confirm = { replicas: 1, timeoutMs: 50 };
  const session = createOperatorSession({
    redisUrl: pair.primary.url,
    partitions: 64,
    allowNoPersistence: true,
    confirm,
  });
  const grant = () => session.write((nodes) => grantCredits(nodes, accountId, 5, "invoice 1", cliActor()));
  pair.replica.pause();
  expect(await grant()).toMatchObject({ result: { outcome: "recharged" }, confirmed: false });
  pair.replica.resume();
  expect(await grant()).toMatchObject({ result: { outcome: "duplicate" }, confirmed: true });
  session.close();
});
