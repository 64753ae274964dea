import type { Scenario } from "../scenario.ts";
import { generation } from "./generation.ts";

/** In the order in which they are run and shown. */
export const SCENARIOS: Record<string, Scenario> = { generation };
