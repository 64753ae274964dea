import { crash } from "./crash.ts";
import { kills } from "./kills.ts";
import type { Scenario } from "./scenario.ts";

/** In the order in which the campaign runs them. */
export const SCENARIOS: readonly Scenario[] = [crash, kills] as Scenario[];
