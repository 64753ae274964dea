import type { RedisNodes } from "../../src/redis/store-facts.ts";
import type { Cluster } from "./cluster.ts";
import { PARTITIONS, slotOfName, slotOfPartition } from "./slots.ts";

/** The primaries of a cluster as they are now, for operators' functions. */
export async function nodesOf(cluster: Cluster): Promise<RedisNodes> {
  const ownerOf = await cluster.owners();
  const clientOf = (slot: number) => ownerOf(slot)!.client;
  const slots = Array.from({ length: PARTITIONS }, (_, partition) => slotOfPartition(partition));
  return {
    of: (partition) => clientOf(slotOfPartition(partition)),
    ofName: (name) => clientOf(slotOfName(name)),
    all: () => [...new Set(slots.map(clientOf))],
  };
}
