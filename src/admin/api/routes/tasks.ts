import { Type } from "typebox";
import { refundTask } from "../../../operations/credits/refunds.ts";
import { findTask, noTask, releaseTask } from "../../../operations/tasks/operator-tasks.ts";
import { listTasks } from "../../../operations/tasks/task-lists.ts";
import { LISTED_STATUSES, type TaskView, taskView } from "../../../operations/tasks/task-view.ts";
import type { RedisNodes } from "../../../redis/nodes.ts";
import type { Grantee } from "../authorize.ts";
import { LIMIT_DEFAULT, pageOf, paging, period, reaches } from "../list-schemas.ts";
import { periodOf } from "../request.ts";
import { route } from "../route.ts";
import type { Services } from "../services.ts";
import { isoTimeOrNull, taskShown } from "../shown.ts";
import { Release, Task } from "../task-schemas.ts";
import { NewRefund } from "../transaction-schemas.ts";
import { bookingAnswer, bookingAnswers } from "./credits.ts";

/** @throws OperatorError `not_found`, also for a task of an account that the token may not use */
async function taskOf(nodes: RedisNodes, id: string, { accounts }: Grantee): Promise<TaskView> {
  const { requestId, record } = await findTask(nodes, id);
  const task = taskView(requestId, record);
  if (task && (accounts === undefined || accounts.includes(task.accountId))) return task;
  throw noTask(id);
}

const Query = Type.Object(
  {
    ...paging,
    status: Type.Optional(Type.Enum([...LISTED_STATUSES], { description: "Those that stand there now." })),
    endpoint: Type.Optional(
      Type.String({ description: "The full path.", examples: ["/api/v1/gen2/text-to-video"] }),
    ),
    ...period,
  },
  { additionalProperties: false },
);

const Page = Type.Object({ ...pageOf(Task).properties, ...reaches }, { additionalProperties: false });

/** Tasks of an account, and one task, by its id or by that of its request. */
export const taskRoutes = (services: Services) => [listRoute(services), ...oneTaskRoutes(services)];

const listRoute = ({ session, archive }: Services) =>
  route({
    method: "GET",
    path: "/accounts/{account}/tasks",
    tag: "Tasks",
    scope: "tasks:read",
    name: "listTasks",
    summary: "List tasks",
    description:
      "Open ones first, then those that were charged, newest first; void ones with `status=void` only; `from` and `to` are about their creation. Pages may have fewer rows than `limit`, even none, and still a next one.",
    query: Query,
    answers: { 200: { description: "Tasks.", schema: Page } },
    refusals: [404],
    async run({ params, query }) {
      const { status, endpoint, cursor, limit = LIMIT_DEFAULT } = query;
      const filter = {
        ...{ status, endpoint, cursor, limit },
        ...periodOf(query),
      };
      const { tasks, next, reachesBackToMs } = await session.run(async (nodes) =>
        listTasks(nodes, params.account!, filter, await archive?.open(nodes)),
      );
      const reach = reachesBackToMs === undefined ? {} : { reaches_back_to: isoTimeOrNull(reachesBackToMs) };
      return { status: 200, body: { data: tasks.map(taskShown), next_cursor: next ?? null, ...reach } };
    },
  });

const oneTaskRoutes = ({ session }: Services) => [
  route({
    method: "GET",
    path: "/tasks/{task}",
    tag: "Tasks",
    scope: "tasks:read",
    name: "readTask",
    summary: "Read a task",
    description: "By its id, or by that of its request. Ended ones are forgotten after `tasks.retention`.",
    answers: { 200: { description: "The task.", schema: Task } },
    refusals: [404],
    run: async ({ params, grantee }) => ({
      status: 200,
      body: taskShown(await session.run((nodes) => taskOf(nodes, params.task!, grantee))),
    }),
  }),
  route({
    method: "POST",
    path: "/tasks/{task}/release",
    tag: "Tasks",
    scope: "tasks:write",
    name: "releaseTask",
    summary: "End a task that does not end by itself",
    description:
      "A task ends as failed, its slot is free and its price refunded. A hold is voided. One that has ended stays as it is.",
    answers: { 200: { description: "What was done.", schema: Release } },
    refusals: [404, 409],
    async run({ params, grantee, actor }) {
      const { result, confirmed } = await session.write(async (nodes) => {
        await taskOf(nodes, params.task!, grantee);
        return releaseTask(nodes, params.task!, actor);
      });
      return { status: 200, body: result, confirmed };
    },
  }),
  route({
    method: "POST",
    path: "/tasks/{task}/refund",
    tag: "Tasks",
    scope: "tasks:write",
    name: "refundTask",
    summary: "Refund a finished task",
    description:
      "Gives back what it was charged, also of a completed one, once. It is linked to the charge. One that runs is 409: release it. " +
      "Also long after its end, while ledger or archive have its charge.",
    body: NewRefund,
    answers: bookingAnswers("The transaction, with the balance."),
    refusals: [404, 409],
    async run({ params, body, grantee, actor }) {
      const wanted = { ...body, accounts: grantee.accounts };
      const { result, confirmed } = await session.write((nodes) =>
        refundTask(nodes, params.task!, wanted, actor, session.archive),
      );
      return bookingAnswer(result, confirmed, session.archive.readArchived !== undefined);
    },
  }),
];
