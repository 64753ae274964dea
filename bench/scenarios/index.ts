import type { Scenario } from "../scenario.ts";
import { footprint } from "./footprint.ts";
import { generation } from "./generation.ts";
import { governing } from "./governing.ts";
import { growth } from "./growth.ts";
import { idle } from "./idle.ts";
import { latency } from "./latency.ts";
import { poll } from "./poll.ts";
import { primaries } from "./primaries.ts";
import { profiles } from "./profiles.ts";
import { refusal } from "./refusal.ts";
import { memory, stall } from "./steady.ts";
import { sweeper } from "./sweeper.ts";
import { taskEnds } from "./task-ends.ts";
import { uploads } from "./uploads.ts";
import { webhooks } from "./webhooks.ts";
import { workers } from "./workers.ts";

/** In the order in which they are run and shown. */
export const SCENARIOS: Record<string, Scenario> = {
  generation,
  governing,
  refusal,
  poll,
  idle,
  latency,
  stall,
  memory,
  growth,
  footprint,
  sweeper,
  webhooks,
  taskEnds,
  workers,
  primaries,
  uploads,
  profiles,
};
