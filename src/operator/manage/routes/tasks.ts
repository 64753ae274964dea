import { OperatorError } from "../../../store/accounts.ts";
import type { RedisNodes } from "../../../store/nodes.ts";
import { findTask, releaseTask, type TaskView } from "../../../store/operator-tasks.ts";
import { refundTask } from "../../../store/refunds.ts";
import type { Grantee } from "../authorize.ts";
import { route } from "../route.ts";
import { NewRefund, Release, Task } from "../schemas.ts";
import type { Services } from "../services.ts";
import { taskShown } from "../shown.ts";
import { bookingAnswer, bookingAnswers } from "./credits.ts";

/** @throws OperatorError `not_found`, also for a task of an account that the token may not use */
async function taskOf(nodes: RedisNodes, id: string, { accounts }: Grantee): Promise<TaskView> {
  const task = await findTask(nodes, id);
  if (accounts === undefined || accounts.includes(task.record.account_id ?? "")) return task;
  throw noTask(id);
}

const noTask = (id: string): OperatorError =>
  new OperatorError(`there is no task or request ${id}`, "not_found");

/** One task, by its id or by that of its request. */
export const taskRoutes = ({ session }: Services) => [
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
      const { result, confirmed } = await session.write(async (nodes) => {
        // Who may use some accounts only refunds what Redis still has.
        if (grantee.accounts) await taskOf(nodes, params.task!, grantee);
        return refundTask(nodes, params.task!, body, actor, session.archive);
      });
      return bookingAnswer(result, confirmed);
    },
  }),
];
