import type { Scenario } from "../scenario.ts";
import { generation } from "./generation.ts";
import { poll } from "./poll.ts";
import { refusal } from "./refusal.ts";

/** In the order in which they are run and shown. */
export const SCENARIOS: Record<string, Scenario> = { generation, refusal, poll };
