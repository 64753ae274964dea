import { API_PREFIX } from "../../../domain/endpoints.ts";
import { requireEndpoint } from "../../../operations/access/operator-values.ts";
import { refundTask } from "../../../operations/credits/refunds.ts";
import { withLabels } from "../../../operations/labels.ts";
import {
  type FoundRequest,
  findTask,
  noTask,
  releaseTask,
  transactionsOfTask,
} from "../../../operations/tasks/operator-tasks.ts";
import { LISTED_STATUSES, listTasks, taskView } from "../../../operations/tasks/task-lists.ts";
import type { RedisNodes } from "../../../redis/store-facts.ts";
import * as t from "../field-schemas.ts";
import { NewRefund, Transaction } from "../money-schemas.ts";
import { periodOf } from "../request.ts";
import { type ApiCall, operation, page } from "../route.ts";
import { Release, Task, TaskDetail } from "../schemas.ts";
import { seenShown, transactionShown } from "../shown.ts";
import { bookingAnswer, bookingAnswers } from "./credits.ts";

/** @throws OperatorError `not_found`, also for a task of an account that the token may not use */
async function taskOf(nodes: RedisNodes, { params, grantee: { accounts } }: ApiCall): Promise<FoundRequest> {
  const found = await findTask(nodes, params.task!);
  const { account_id: accountId } = found.record;
  if (accountId !== undefined && (accounts === undefined || accounts.includes(accountId))) return found;
  throw noTask(params.task!);
}

const Query = t.object({
  ...t.paging,
  status: t.optional(t.oneOf(LISTED_STATUSES, "Those that stand there now.")),
  endpoint: t.filter(200, "In the short form, such as `gen2/text-to-video`, or as a path."),
  ...t.period,
});

const listOfTasks = operation("GET /accounts/{account}/tasks", {
  scope: "tasks:read",
  name: "listTasks",
  summary: "List tasks",
  description:
    "Open ones first, then those that were charged, newest first; void ones with `status=void` only; `from` and `to` are about their creation. Pages may have fewer rows than `limit`, even none, and still a next one.",
  query: Query,
  answers: { 200: { description: "Tasks.", schema: t.pageOf(Task, t.reaches) } },
  async operate(nodes, { params, query }, { archive }) {
    const { status, endpoint: text, cursor, limit = t.LIMIT_DEFAULT } = query;
    const endpoint = text === undefined ? undefined : API_PREFIX + requireEndpoint(text, "endpoint");
    const filter = { ...{ status, endpoint, cursor, limit }, ...periodOf(query) };
    const found = await listTasks(nodes, params.account!, filter, await archive?.open(nodes));
    return { ...found, tasks: await withLabels(nodes, found.tasks, ({ accountId }) => accountId) };
  },
  answer: ({ tasks, next, reachesBackToMs }) => page(tasks, next, { reachesBackToMs }),
});

export const readingOfTask = operation("GET /tasks/{task}", {
  scope: "tasks:read",
  name: "readTask",
  summary: "Read a task",
  description: "By its id, or by that of its request. Ended ones are forgotten after `tasks.retention`.",
  answers: { 200: { description: "The task.", schema: TaskDetail } },
  async operate(nodes, call) {
    const found = await taskOf(nodes, call);
    const { account_id: accountId = "", key_id: keyId = "" } = found.record;
    const [labels] = await withLabels(nodes, [{ keyId }], () => accountId);
    return { ...found, labels };
  },
  answer: ({ requestId, record, data, labels }) => ({
    status: 200,
    body: { ...taskView(requestId, record), ...labels, ...seenShown(data) },
  }),
});

const transactionsOfTaskRoute = operation("GET /tasks/{task}/transactions", {
  tag: "Tasks",
  scope: "credits:read",
  name: "listTransactionsOfTask",
  summary: "List the transactions of a task",
  description:
    "Oldest first: its charge, its refund or correction and who made it, and the charge after a completion that came late. Of a task that `GET /tasks/{task}` knows.",
  answers: { 200: { description: "Transactions, all on one page.", schema: t.pageOf(Transaction) } },
  async operate(nodes, call, { archive, lookUps }) {
    const opened = await archive?.open(nodes);
    return transactionsOfTask(nodes, await taskOf(nodes, call), { ...lookUps, history: opened?.history });
  },
  answer: (entries) => page(entries.map((entry) => transactionShown(entry))),
});

export const releaseOfTask = operation("POST /tasks/{task}/release", {
  scope: "tasks:write",
  name: "releaseTask",
  summary: "End a task that does not end by itself",
  description:
    "A task ends as failed, its slot is free and its price refunded. A hold is voided. One that has ended stays as it is.",
  answers: { 200: { description: "What was done.", schema: Release } },
  refusals: [409],
  async operate(nodes, call) {
    await taskOf(nodes, call);
    return releaseTask(nodes, call.params.task!, call.actor);
  },
  answer: (body) => ({ status: 200, body }),
});

export const refundOfTask = operation("POST /tasks/{task}/refund", {
  scope: "tasks:write",
  name: "refundTask",
  summary: "Refund a finished task",
  description:
    "Gives back what it was charged, also of a completed one, once. It is linked to the charge. One that runs is 409: release it. " +
    "Also long after its end, while ledger or archive have its charge.",
  body: NewRefund,
  answers: bookingAnswers("The transaction, with the balance."),
  refusals: [409],
  operate: (nodes, { params, body, grantee: { accounts }, actor }, { lookUps }) =>
    refundTask(nodes, params.task!, { ...body, accounts }, actor, lookUps),
  answer: bookingAnswer,
});

export const taskRoutes = [listOfTasks, readingOfTask, transactionsOfTaskRoute, releaseOfTask, refundOfTask];
