import type { EarlierLine } from "../../src/settlement/journal-earlier-lines.ts";
import type { Generation } from "../../src/store/scripts/admit.ts";
import { DATA, MAX_AGE_MS, POLL_MS, UPSTREAM } from "./store.ts";

/** What the release that wrote a line put into it: the first had 13 ARGV for a BIND, later ones 17 and a format. */
export type EarlierRelease = 1 | 2;

/** A BIND in the journal of an earlier release. @param taskName where that release would keep the task */
export function earlierBind(
  { requestId, key, price, endpoint, retentionMs, idempotency }: Generation,
  taskId: string,
  release: EarlierRelease,
  taskName = `tg:task:${taskId}`,
): EarlierLine {
  const tag = `tg:{p${String(key.partition).padStart(2, "0")}}`;
  const { account, slots, polls, ledger, done, holds } = key.names;
  const keys = [`${tag}:request:${requestId}`, account, slots, polls, ledger, taskName, done, holds];
  if (idempotency) keys.push(`${tag}:idempotency:${idempotency.digest}`);
  const { fingerprint = "", digest = "" } = idempotency ?? {};
  const tiers = ";standard 20 3 500;";
  const args = ["", tiers, requestId, key.accountId, key.keyId, price, endpoint, taskId, POLL_MS];
  args.push(idempotency ? DATA : "", fingerprint, 86_400_000, digest);
  if (release === 2) args.push(MAX_AGE_MS, UPSTREAM, retentionMs, key.names.key);
  return { ...(release === 2 && { format: 2 }), requestId, atMs: Date.now(), verb: "bind", keys, args };
}

/** A VOID in the journal of an earlier release. */
export function earlierVoid({ requestId, key, idempotency }: Generation, reason: string): EarlierLine {
  const tag = `tg:{p${String(key.partition).padStart(2, "0")}}`;
  const { account, key: record, window, slots, holds, done } = key.names;
  const keys = [`${tag}:request:${requestId}`, account, record, window, slots, holds, done];
  if (idempotency) keys.push(`${tag}:idempotency:${idempotency.digest}`);
  const args = ["", ";standard 20 3 500;", requestId, reason, 3_600_000];
  return { format: 2, requestId, atMs: Date.now(), verb: "void", keys, args };
}
