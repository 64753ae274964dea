import { listPartitions, type PartitionView } from "../../operations/store/freezing.ts";
import type { RedisNodes } from "../../redis/nodes.ts";
import { readsOfMost } from "../../redis/partition-reads.ts";
import { type Check, good, warning } from "./doctor-check.ts";

/** What an operator may have left behind who moved slots of a Redis Cluster; nothing on one server. */
export async function frozenChecks(nodes: RedisNodes, partitions: number): Promise<Check[]> {
  const views = await listPartitions(nodes, readsOfMost(nodes), partitions);
  if (views[0]?.slot === undefined) return [];
  const frozen = views.filter(
    ({ frozenSinceMs, hasFreezeFlag }) => frozenSinceMs !== undefined || hasFreezeFlag,
  );
  const moving = views.filter(({ isMoving }) => isMoving);
  if (frozen.length + moving.length === 0)
    return [good("frozen", "no partition is frozen, and none has a slot between two nodes")];
  const found = [
    ...(frozen.length > 0 ? [`frozen: ${numbersOf(frozen)}; their accounts get 503`] : []),
    ...(moving.length > 0 ? [`with a slot between two nodes: ${numbersOf(moving)}`] : []),
  ];
  const advice =
    "if no move goes on, run `redis-cli --cluster check`, `--cluster fix`, and `tollgate partitions thaw`";
  return [warning("frozen", `partitions ${found.join("; ")}`, advice)];
}

const numbersOf = (views: readonly PartitionView[]): string =>
  views.map(({ partition }) => partition).join(", ");
