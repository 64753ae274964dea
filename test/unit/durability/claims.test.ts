import { expect, test, vi } from "vitest";
import { ClaimError } from "../../../src/durability/claims.ts";
import { createTaskIds } from "../../../src/durability/task-ids.ts";
import { claimText, keyRef } from "../../../src/records/names.ts";
import { bindClaimed } from "../../../src/scripts/holds.ts";
import { dispute } from "../../../src/scripts/tasks.ts";
import { ENDPOINT, newTask } from "../../support/store.ts";

const CALL = {
  requestId: "req",
  key: keyRef("key", "acc", 5),
  price: 10,
  endpoint: ENDPOINT,
  retentionMs: 60_000,
  task: newTask("task"),
};
const saying = (words: string): Error => Object.assign(new Error(words), { name: "ReplyError" });

/** A Redis Cluster where commands about claims end so. @param place of the claim, seen from the account's primary */
function givenCluster(answer: Error | (string | null)[], place: "same" | "another") {
  const run = vi.fn(async (): Promise<unknown> => "bound");
  const command = vi.fn(async () => (answer instanceof Error ? Promise.reject(answer) : answer));
  const primary = { run, command };
  const store = {
    of: () => primary,
    ofName: () => (place === "same" ? primary : { command }),
    known: { facts: { partitions: 64, cluster: true } },
  };
  return { tasks: createTaskIds(store as unknown as Parameters<typeof createTaskIds>[0]), run, command };
}

// Guarantee: a claim that cannot be taken keeps no other charge of the account's primary back, and nothing is charged without it.
test.each<[string, Error, "same" | "another", stopsPrimary: boolean]>([
  ["the account's primary is away", new Error("Connection is closed."), "same", true],
  ["the account's primary refuses it", saying("NOPERM no permission"), "same", false],
  ["its slot moves away", saying("MOVED 15343 127.0.0.1:7001"), "same", false],
  ["another primary is away", new Error("Connection is closed."), "another", false],
  ["another primary refuses it", saying("NOPERM no permission"), "another", false],
])("a charge whose claim fails since %s waits", async (_, failure, place, stopsPrimary) => {
  const { tasks, run } = givenCluster(failure, place);
  const error: unknown = await tasks.bind(CALL).catch((thrown: unknown) => thrown);
  expect(run).not.toHaveBeenCalled();
  expect(error === failure).toBe(stopsPrimary);
  expect(error instanceof ClaimError).toBe(!stopsPrimary);
});

test("a charge that was answered before is repeated without its claim, but not past its own primary", async () => {
  const elsewhere = givenCluster(new Error("Connection is closed."), "another");
  expect(await elsewhere.tasks.bind(CALL, true)).toBe("bound");
  expect(elsewhere.run).toHaveBeenCalledExactlyOnceWith(bindClaimed, CALL);
  elsewhere.run.mockResolvedValueOnce("forgotten");
  expect(await elsewhere.tasks.bind(CALL, true)).toBe("forgotten");
  const failure = new Error("Connection is closed.");
  const here = givenCluster(failure, "same");
  await expect(here.tasks.bind(CALL, true)).rejects.toBe(failure);
  expect(here.run).not.toHaveBeenCalled();
});

// Guarantee: where the upstream gave an id twice, its owner is marked before anybody hears of the conflict.
test("a charge of a task id that another request has waits until that is marked, and is a conflict then", async () => {
  const { tasks, run } = givenCluster([claimText("another", 6)], "another");
  run.mockRejectedValueOnce(new Error("Connection is closed."));
  await expect(tasks.bind(CALL)).rejects.toThrow(Error);
  expect(await tasks.bind(CALL)).toBe("conflict");
  expect(run).toHaveBeenCalledTimes(2);
  expect(run).toHaveBeenLastCalledWith(
    dispute,
    expect.objectContaining({ ownerId: "another", partition: 6 }),
  );
});

test.each([
  ["bound", 1],
  ["uncollected", 1],
  ["forgotten", 2],
  ["conflict", 2],
])(
  "the claim of a charge that ends as %s takes %d commands: it is removed without a charge",
  async (outcome, commands) => {
    const { tasks, run, command } = givenCluster([null], "another");
    run.mockResolvedValueOnce(outcome);
    expect(await tasks.bind(CALL)).toBe(outcome);
    expect(command).toHaveBeenCalledTimes(commands);
  },
);
