import { crash } from "./crash.ts";
import { kills } from "./kills.ts";
import { redisLink } from "./redis-link.ts";
import type { Scenario } from "./scenario.ts";
import { upstream } from "./upstream.ts";

/** In the order in which the campaign runs them. */
export const SCENARIOS: readonly Scenario[] = [crash, kills, redisLink, upstream] as Scenario[];
