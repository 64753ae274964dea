import { readingOfTask, refundOfTask, releaseOfTask } from "../admin/api/routes/tasks.ts";
import { type FoundRequest, findTask, type ReleaseResult } from "../operations/tasks/operator-tasks.ts";
import { ledgerRow } from "./ledger.ts";
import { operationCommand, workCommand } from "./operation-command.ts";
import { group } from "./options.ts";
import { iso, listing } from "./terminal.ts";

const TASK = { "<task>": "task id or request id" };

export const tasksCommand = group("tasks", "generation requests and their tasks", [
  operationCommand(readingOfTask, {
    name: "show",
    about: "where a request stands",
    arguments: TASK,
    show(found) {
      const json = { ...shown(found), refunded: found.record.refunded !== undefined };
      return { json, text: listing(json) };
    },
  }),
  workCommand(
    releaseOfTask,
    async (operate, nodes, { params }) => ({
      release: await operate(),
      view: await findTask(nodes, params.task!),
    }),
    {
      name: "release",
      about: "end a task as failed and refund it, or void a hold",
      arguments: TASK,
      show: ({ release, view }) => ({
        json: { ...release, ...shown(view) },
        text: inWords(release, view.requestId),
      }),
    },
  ),
  operationCommand(refundOfTask, {
    name: "refund",
    about: "give back what a finished task cost, once",
    arguments: TASK,
    options: {
      "--reason <text>": "why; customers see `refund`",
      "--reference <text>": "what stands for it, such as a ticket; counts once",
    },
    show({ outcome, accountId, requestId, balance, entry }, { params: { task }, body }) {
      const { reference } = body as { reference: string };
      const text =
        outcome === "refunded"
          ? `${entry?.amount ?? "Its"} credits of ${task} are given back to ${accountId}; it can spend ${balance}.`
          : `The reference ${reference} has refunded ${task} before; nothing is changed. ${accountId} can spend ${balance}.`;
      const json = { outcome, account_id: accountId, request_id: requestId, balance };
      return { json: { ...json, transaction: entry && ledgerRow(entry) }, text };
    },
  }),
]);

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
