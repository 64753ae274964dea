import { Command } from "commander";
import { archiveLookUps } from "../archive/archived-money.ts";
import { type Refund, refundTask } from "../operations/credits/refunds.ts";
import {
  type FoundRequest,
  findTask,
  type ReleaseResult,
  releaseTask,
} from "../operations/tasks/operator-tasks.ts";
import { ledgerRow } from "./ledger-rows.ts";
import { optionalArchiveUrl } from "./local-archive.ts";
import { type ActorFlags, actorOf, changing, command } from "./options.ts";
import { print } from "./output.ts";
import { withRedis, withRedisToWrite } from "./redis.ts";
import { iso, listing } from "./terminal.ts";

/** `tollgate tasks ...` */
export function tasksCommand(): Command {
  return new Command("tasks")
    .description("generation requests and their tasks")
    .addCommand(showCommand())
    .addCommand(releaseCommand())
    .addCommand(refundCommand());
}

const ID_ARGUMENT = ["<id>", "task id or request id"] as const;
const onTask = (name: string, description: string): Command =>
  command(name, description).argument(...ID_ARGUMENT);

function showCommand(): Command {
  return onTask("show", "where a request stands").action(async (id: string, flags: { json?: boolean }) => {
    const found = await withRedis((nodes) => findTask(nodes, id));
    const json = { ...shown(found), refunded: found.record.refunded !== undefined };
    print({ json, text: listing(json) }, flags);
  });
}

function releaseCommand(): Command {
  return changing("release", "end a task as failed and refund it, or void a hold")
    .argument(...ID_ARGUMENT)
    .action(async (id: string, flags: ActorFlags & { json?: boolean }) => {
      const { result, confirmed } = await withRedisToWrite(async (nodes) => ({
        release: await releaseTask(nodes, id, actorOf(flags)),
        view: await findTask(nodes, id),
      }));
      const { release, view } = result;
      const json = { ...release, ...shown(view) };
      print({ json, text: inWords(release, view.requestId), confirmed }, flags);
    });
}

interface RefundFlags extends ActorFlags {
  reason: string;
  reference: string;
  json?: boolean;
}

function refundCommand(): Command {
  return changing("refund", "give back what a finished task cost, once")
    .argument(...ID_ARGUMENT)
    .requiredOption("--reason <text>", "why; customers see `refund`")
    .requiredOption("--reference <text>", "what stands for it, such as a ticket; counts once")
    .action(async (id: string, flags: RefundFlags) => {
      const { reason, reference } = flags;
      const archive = archiveLookUps(optionalArchiveUrl());
      const { result, confirmed } = await withRedisToWrite((nodes) =>
        refundTask(nodes, id, { reason, reference }, actorOf(flags), archive),
      );
      const { outcome, accountId, requestId, balance, entry } = result;
      const json = {
        ...{ outcome, account_id: accountId, request_id: requestId, balance },
        transaction: entry && ledgerRow(entry),
      };
      print({ json, text: refundInWords(id, result, reference), confirmed }, flags);
    });
}

const refundInWords = (
  id: string,
  { outcome, accountId, balance, entry }: Refund,
  reference: string,
): string =>
  outcome === "refunded"
    ? `${entry?.amount ?? "Its"} credits of ${id} are given back to ${accountId}; it can spend ${balance}.`
    : `The reference ${reference} has refunded ${id} before; nothing is changed. ${accountId} can spend ${balance}.`;

function inWords(release: ReleaseResult, requestId: string): string {
  switch (release.outcome) {
    case "ended":
      return `The task of ${requestId} ended as failed; its slot is free and ${release.refunded} credits are refunded.`;
    case "voided":
      return `The hold of ${requestId} is voided; its slot is free and ${release.credits} credits can be spent again.`;
    case "already_finished":
      return `The task of ${requestId} had ended before; nothing is changed.`;
    case "already_void":
      return `The hold of ${requestId} was voided before; nothing is changed.`;
  }
}

function shown({ requestId, record, seen, dueAtMs }: FoundRequest): Record<string, unknown> {
  const time = (name: keyof FoundRequest["record"]): string | undefined =>
    record[name] === undefined ? undefined : iso(Number(record[name]));
  return {
    request_id: requestId,
    task_id: record.task_id,
    state: record.state,
    status: seen?.status ?? record.status,
    account_id: record.account_id,
    key_id: record.key_id,
    endpoint: record.endpoint,
    price: record.price === undefined ? undefined : Number(record.price),
    uncollected: record.uncollected === undefined ? undefined : true,
    unmetered: record.unmetered === undefined ? undefined : true,
    void_reason: record.reason,
    ended_by: record.ended_by,
    admitted_at: time("admitted_at"),
    bound_at: time("bound_at"),
    // The next question to the upstream, or the end of a hold.
    due_at: dueAtMs === undefined ? undefined : iso(dueAtMs),
    observed_at: seen === undefined ? undefined : iso(seen.atMs),
    void_at: time("void_at"),
    finished_at: time("finished_at"),
  };
}
