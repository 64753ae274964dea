import type { Config } from "../../config/config.ts";
import { upstreamTags } from "../../operations/tasks/operator-tasks.ts";
import type { RedisNodes } from "../../redis/nodes.ts";
import { routeOf } from "../../upstream/task-route.ts";
import { type Check, good, warning } from "./doctor-check.ts";

const NAME = "open tasks";
/** Tasks that are looked at in each partition; former upstreams that are named. */
const LOOKED_AT_MAX = 50;
const NAMED_MAX = 3;

/** Whether the upstreams of open tasks are known to a gateway that starts with this configuration. */
export async function tasksCheck(
  nodes: RedisNodes,
  partitions: number,
  { upstream }: Pick<Config, "upstream">,
): Promise<Check> {
  const tags = await upstreamTags(nodes, partitions, LOOKED_AT_MAX);
  const unknown = new Map<string, number>();
  for (const tag of tags) {
    const route = routeOf(tag || undefined, upstream);
    if (route.to !== "unroutable") continue;
    const what =
      route.lacks === "adapter"
        ? `the adapter ${route.adapter} of ${route.origin}`
        : `the ${route.lacks} of ${route.origin}`;
    unknown.set(what, (unknown.get(what) ?? 0) + 1);
  }
  if (unknown.size === 0)
    return good(NAME, `of ${tags.length} checked, all can be polled at their upstreams`);
  const named = [...unknown].slice(0, NAMED_MAX).map(([what, count]) => `${what} (${count})`);
  if (unknown.size > NAMED_MAX) named.push(`${unknown.size - NAMED_MAX} more`);
  return warning(
    NAME,
    `of ${tags.length} checked, some were made by another upstream and cannot be polled; unknown is ${named.join(", ")}`,
    "set UPSTREAM_PREVIOUS_URL, whole and with its path, and UPSTREAM_PREVIOUS_API_KEY if the key was another; or upstream.replaces if it is the same upstream; for an adapter, upstream.previous_adapter",
  );
}
