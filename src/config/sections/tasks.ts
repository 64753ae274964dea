import { Type } from "typebox";
import { duration, integer, section } from "../setting-types.ts";

export const tasksSchema = section("How tasks are followed to their end.", {
  refund_failed: Type.Boolean({ default: true, description: "Refund the credits of a failed task." }),
  max_age: duration(
    "2h",
    "1s",
    "30d",
    "When an unfinished task is ended as failed: after this time with the next answer about it, else after twice this " +
      "time. Fixed for each task when it starts.",
  ),
  cache: duration("5s", "0s", "5s", "How long a task's state may be answered from the cache."),
  sweep_interval: duration(
    "1s",
    "10ms",
    "1m",
    "How often the gateway looks for holds and tasks that are due.",
  ),
  poll_interval: duration(
    "10s",
    "100ms",
    "1h",
    "How long a task may go unpolled before the gateway polls it.",
  ),
  sweep_polls_per_second: integer(
    50,
    1,
    10_000,
    "Polls per second that one gateway sends to an upstream for tasks that no client polls, at most.",
  ),
  unknown_outcomes_per_account: integer(
    20,
    1,
    1000,
    "Requests of one account whose outcome is unknown, at most: with so many, its further generations are refused until a hold of them ends.",
  ),
  retention: duration(
    "7d",
    "1h",
    "366d",
    "How long finished tasks are kept; fixed for each request when it is admitted.",
  ),
});
