import { afterAll, beforeAll, beforeEach, expect, test } from "vitest";
import { rollUp } from "../../src/jobs/rollup-work.ts";
import { verifyLedger } from "../../src/ledger/verify.ts";
import { createAccount, patchAccount } from "../../src/operations/accounts/operator-accounts.ts";
import { grantCredits } from "../../src/operations/credits/grants.ts";
import { changeKey } from "../../src/operations/keys/change-key.ts";
import { issueKey } from "../../src/operations/keys/issue-key.ts";
import { readKey } from "../../src/operations/keys/keys.ts";
import { cliActor } from "../../src/records/actor.ts";
import { accountNames, keyNames, partitionNames, partitionOf } from "../../src/records/names.ts";
import { scriptsOf } from "../../src/redis/script-runner.ts";
import { oneNode, type RedisNodes } from "../../src/redis/store-facts.ts";
import { createClient } from "../support/client.ts";
import { type OwnStore, openOwnStore } from "../support/own-store.ts";
import { createStage, type TestConnection, times } from "../support/store.ts";

// Guarantee: `ledger verify` names what is wrong with an index by which operators find accounts, keys and references.

const ANN = cliActor("test");
const ID = "acme-7";
const PARTITIONS = 2;

let server: OwnStore;
let nodes: RedisNodes;
let connection: TestConnection;
beforeAll(async () => {
  server = await openOwnStore(PARTITIONS);
  connection = server.connection;
  nodes = oneNode(server.client);
});
afterAll(() => server?.stop());

const partition = partitionOf(ID, PARTITIONS);
const of = partitionNames(partition);
const { account, references } = accountNames(partition, ID);
let keyId: string;

/** An account that every index has, with a key that was admitted. */
beforeEach(async () => {
  await server.empty();
  const metadata = { crm: "C-17 Köln", seats: 3, trial: false, note: { deep: "er" }, "a b": "c" };
  await createAccount(nodes, { accountId: ID, label: "Acme Films", metadata }, ANN);
  await patchAccount(nodes, ID, { status: "suspended" }, ANN);
  await patchAccount(nodes, ID, { status: "active" }, ANN);
  await patchAccount(nodes, ID, { status: "suspended" }, ANN);
  const issued = await issueKey(nodes, { accountId: ID, label: "Render farm" }, ANN);
  keyId = issued.keyId;
  await grantCredits(nodes, ID, 100, "order-2026 0042", ANN);
  await server.client.hset(keyNames(partition, keyId).key, "terms", TERMS);
  await rollUp(scriptsOf(server.client).run, { partition });
});

const TERMS = "standard - - - - - - - -";

async function found(options: Parameters<typeof verifyLedger>[1] = {}): Promise<string[]> {
  const { violations } = await verifyLedger(nodes, options);
  expect(violations.every(({ account_id }) => account_id === ID || account_id === "nobody")).toBe(true);
  return violations.map(({ invariant, message }) => `${invariant}: ${message}`);
}

test("an account in all indexes has no violation", async () => {
  expect(await server.client.zcard(of.words)).toBeGreaterThan(8);
  expect(await server.client.zcard(of.metadata)).toBe(3);
  expect(await found()).toEqual([]);
});

const remove =
  (list: string, at = 0) =>
  async () => {
    const [member] = await server.client.zrange(list, String(at), String(at));
    expect(await server.client.zrem(list, member!)).toBe(1);
  };
const add = (list: string, member: string) => async () => {
  await server.client.zadd(list, 0, member);
};
const set = (name: () => string, field: string, value: string) => () =>
  server.client.hset(name(), field, value);

/** Changes, and their names in the findings. */
const BREAKAGES: [string, () => Promise<unknown>, string[]][] = [
  ["a label that is missing", remove(of.labels), ['labels: "acme films acme-7" is missing of acme-7']],
  ["a status that is missing", remove(of.inactive), ['inactive: "suspended acme-7" is missing']],
  ["metadata that is missing", remove(of.metadata), ["metadata: "]],
  ["a balance that is missing", remove(of.byBalance), ['by-balance: "acme-7" is missing']],
  ["words that are missing", remove(of.words, 2), ["words: "]],
  ["all words that are missing", () => server.client.del(of.words), times(12, () => "words: ")],
  [
    "a former label that is still there",
    add(of.labels, `former ${ID}`),
    ['labels: "former acme-7" is there, but not by the record of acme-7'],
  ],
  ["another status", add(of.inactive, `closed ${ID}`), ['inactive: "closed acme-7" is there']],
  ["metadata of nobody", add(of.metadata, "01234567 nobody"), ['metadata: "01234567 nobody" is there']],
  ["a balance of nobody", add(of.byBalance, "nobody"), ['by-balance: "nobody" is there']],
  ["words of a former label", add(of.words, `former/${ID}`), ['words: "former/acme-7" is there']],
  ["words of a reference that there is not", add(of.words, `x/${ID}=x`), ["of reference x"]],
  ["words of a key that there is not", add(of.words, `x/${ID}@key_x`), ["of key_x"]],
  [
    "words of a key that is another account's",
    () => add(of.words, `render farm/nobody@${keyId}`)(),
    ["of key_"],
  ],
  [
    "another balance",
    () => server.client.zadd(of.byBalance, 99, ID),
    ["by-balance: it is listed with 99, and has 100"],
  ],
  [
    "a label that was changed by hand",
    set(() => account, "label", "Other"),
    ["labels: ", "words: ", "labels: ", "words: ", "words: "],
  ],
  [
    "terms of another tier",
    set(() => keyNames(partition, keyId).key, "tier", "enterprise"),
    ["its terms are"],
  ],
];

test.each(BREAKAGES)("%s is named", async (_, breakIndex, messages) => {
  await breakIndex();
  const all = await found();
  expect(all, all.join("\n")).toHaveLength(messages.length);
  for (const message of messages)
    expect(all).toContainEqual(expect.stringMatching(new RegExp(`^index: .*${RegExp.escape(message)}`)));
  expect(await found({ accountIds: ["somebody-else"] })).toEqual([]);
});

test("references of more than a page are compared, one by one", async () => {
  const { accountId, client } = { accountId: ID, client: server.client };
  await Promise.all(times(700, (at) => grantCredits(nodes, accountId, 1, `pay ${at}`, ANN)));
  expect(await client.hlen(references)).toBe(701);
  expect(await found()).toEqual([]);
  await client.zrem(of.words, `pay 555/${ID}=pay 555`);
  expect(await found()).toEqual([
    `index: ${of.words}: "pay 555/${ID}=pay 555" is missing of reference pay 555`,
  ]);
});

test("accounts of more than a slice are compared, one by one", async () => {
  // About 60 in each partition come before it.
  for (const at of times(120, (nth) => nth)) await createAccount(nodes, { accountId: `aa-${at}` }, ANN);
  expect(await found()).toEqual([]);
  await server.client.zrem(of.byBalance, ID);
  expect(await found()).toEqual([expect.stringContaining('by-balance: "acme-7" is missing')]);
});

test("a balance whose entries are not counted yet is no violation", async () => {
  await grantCredits(nodes, ID, 5, "later", ANN);
  expect(await found()).toEqual([]);
  await rollUp(scriptsOf(server.client).run, { partition });
  expect(await found()).toEqual([]);
});

// Guarantee: the hourly check runs beside traffic and operators, and calls nothing wrong that is right.
test("indexes that change while they are read are never called wrong", async () => {
  const stage = createStage(connection, { clock: "redis", partition });
  const key = await stage.givenKey({
    accountId: ID,
    credits: 1000,
    rate_limit: 1_000_000,
    daily_limit: 1_000_000,
  });
  const clients = times(2, () => createClient(server.url, 10_000));
  await Promise.all(clients.map((client) => client.connect()));
  const others = clients.map((client) => oneNode(client));
  let [going, changes] = [true, 0];
  const live = async (work: (turn: number) => Promise<unknown>): Promise<void> => {
    for (let turn = 0; going; turn++, changes++) await work(turn);
  };
  const traffic = [
    live((turn) =>
      patchAccount(
        others[0]!,
        ID,
        {
          label: `Acme ${turn % 2}`,
          metadata: { crm: `c ${turn % 3}` },
          status: turn % 2 === 0 ? "suspended" : "active",
        },
        ANN,
      ),
    ),
    live(async (turn) =>
      changeKey(
        others[1]!,
        (await readKey(nodes, keyId, ID))!,
        { label: `Farm ${turn % 2}`, limits: { rate_limit: 1 + (turn % 3) } },
        ANN,
      ),
    ),
    live((turn) => grantCredits(others[1]!, ID, 1, `live ${turn}`, ANN)),
    live(() => stage.admit(stage.request(key, { price: 1 }))),
    live(() => rollUp(scriptsOf(clients[1]!).run, { partition })),
  ];
  try {
    const endMs = performance.now() + 4000;
    for (let round = 0; round < 20 && performance.now() < endMs; round++) expect(await found()).toEqual([]);
  } finally {
    going = false;
    await Promise.all(traffic);
    for (const client of clients) client.disconnect();
  }
  expect(changes).toBeGreaterThan(50);
  await rollUp(scriptsOf(server.client).run, { partition });
  expect(await found()).toEqual([]);
});
