import { isLater } from "../records/entry-ids.ts";
import type { LedgerEntry } from "../records/ledger-entries.ts";
import { requestName } from "../records/names.ts";
import type { RequestRecord } from "../records/records.ts";
import { many } from "../redis/pipelines.ts";
import { scriptsOf } from "../redis/script-runner.ts";
import { ENTRIES_AT_ONCE, entries, type LedgerPart } from "../scripts/entries.ts";
import { addEntry, compareRecord, goOnFrom, type LedgerFold } from "./fold.ts";
import { isWanted, type Run } from "./verify-run.ts";

export async function readLedgerToEnd(run: Run, partition: number, fold: LedgerFold): Promise<void> {
  const { run: runScript } = scriptsOf(run.nodes.of(partition));
  let part: LedgerPart;
  do {
    part = await runScript(entries, { partition, after: fold.lastId });
    await addEntries(run, partition, fold, part);
    await run.step();
  } while (part.entries.length === ENTRIES_AT_ONCE);
}

export async function addEntries(
  run: Run,
  partition: number,
  fold: LedgerFold,
  { entries, cut, before }: LedgerPart,
): Promise<void> {
  const { nodes, report } = run;
  const comparable = entries.filter((entry) => {
    const { accountId, streamId, previous } = entry;
    const checkpoint = before.get(accountId);
    if (checkpoint?.entry === previous) goOnFrom(fold, accountId, checkpoint, report);
    if (fold.isFirst && !isLater(streamId, cut))
      report("chain", accountId, `entry ${streamId} is there, but ${cut} has left`);
    return addEntry(fold, entry, report);
  });
  if (!fold.isFirst) return;
  const ofRequests = comparable.filter((entry) => isWanted(run, entry.accountId));
  const records = await many<RequestRecord, LedgerEntry>(
    nodes.of(partition),
    ofRequests,
    (pipe, { requestId }) => pipe.hgetall(requestName(partition, requestId)),
  );
  for (const [at, entry] of ofRequests.entries()) compareRecord(fold, entry, records[at] ?? {}, report);
}
