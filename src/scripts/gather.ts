import { accountNames, keyNames } from "../records/names.ts";
import type { Run, Script } from "./script-definition.ts";

/** Slots that are added in one call. */
const SLOTS_AT_ONCE = 200;

interface GatherCall {
  partition: number;
  accountId: string;
  keyIds: readonly string[];
  /** Where the slots of the first key go on. */
  cursor?: string;
}

/** `done`: of these keys; the slots of the next one go on at `cursor`. */
type GatherReply = { outcome: "unlimited" } | { outcome: "gathered"; done: number; cursor: string };

export const gather: Script<GatherCall, GatherReply> = {
  name: "gather",
  keys({ partition, accountId }) {
    const { account, slots } = accountNames(partition, accountId);
    return [account, slots];
  },
  args: ({ partition, keyIds, cursor = "0" }) => [
    keyNames(partition, "").slots,
    SLOTS_AT_ONCE,
    cursor,
    ...keyIds,
  ],
  read([outcome, , done, cursor]) {
    if (outcome === "unlimited") return { outcome };
    return { outcome: "gathered", done: Number(done), cursor: String(cursor) };
  },
};

export async function gatherAll(run: Run, call: Omit<GatherCall, "cursor">): Promise<void> {
  let { keyIds } = call;
  let cursor = "0";
  while (keyIds.length > 0) {
    const reply = await run(gather, { ...call, keyIds, cursor });
    if (reply.outcome === "unlimited") return;
    keyIds = keyIds.slice(reply.done);
    cursor = reply.cursor;
  }
}
