import { slotOfPartition } from "../operations/store/freezing.ts";
import { SLOTS } from "../redis/topology/cluster-slots.ts";
import { type Check, checksOf } from "./check.ts";

const { good, warning, failed } = checksOf("cluster");

/** A line of CLUSTER NODES. */
export interface ClusterNode {
  id: string;
  /** `host:port`, the host by its name where it announces one. */
  server: string;
  isMyself: boolean;
  isPrimary: boolean;
  /** Most primaries agree that it is away. */
  hasFailed: boolean;
  /** Of a replica: whom it follows. */
  primaryId: string | undefined;
  slots: readonly (readonly [first: number, last: number])[];
}

/** Reads CLUSTER NODES. https://redis.io/docs/latest/commands/cluster-nodes/ */
export function readClusterNodes(text: string): ClusterNode[] {
  const lines = text.split("\n").filter((line) => line.includes(" "));
  return lines.map((line) => {
    const [id = "", at = "", flags = "", primary = "-", , , , , ...slots] = line.trim().split(" ");
    const all = flags.split(",");
    return {
      id,
      server: serverIn(at),
      isMyself: all.includes("myself"),
      isPrimary: all.includes("master"),
      hasFailed: all.includes("fail"),
      primaryId: primary === "-" ? undefined : primary,
      // A slot that moves is in brackets; it is the owner's until then.
      slots: slots.filter((slot) => /^\d/.test(slot)).map(rangeOf),
    };
  });
}

/** @param at `ip:port@busport`, from Redis 7.0 on with `,hostname` */
function serverIn(at: string): string {
  const [address = "", hostname = ""] = at.split(",");
  const ipAndPort = address.split("@")[0] ?? "";
  return hostname === "" ? ipAndPort : hostname + ipAndPort.slice(ipAndPort.lastIndexOf(":"));
}

function rangeOf(text: string): readonly [number, number] {
  const [first = 0, last = first] = text.split("-").map(Number);
  return [first, last];
}

/** @param views what each primary that answers says @param partitions undefined while they cannot be read */
export function clusterChecks(
  views: readonly (readonly ClusterNode[])[],
  partitions: number | undefined,
): Check[] {
  const nodes = [...new Map(views.flat().map((node) => [node.id, node])).values()];
  const failedIds = new Set(
    views.flatMap((view) => view.filter(({ hasFailed }) => hasFailed).map(({ id }) => id)),
  );
  const bad = [
    ...coverage(views, failedIds, partitions),
    ...nodes.filter(({ id }) => failedIds.has(id)).map(failedNode),
    ...alone(nodes, failedIds),
  ];
  if (bad.length > 0 || nodes.length === 0) return bad;
  return [good(`${nodes.length} nodes; all ${SLOTS} slots have a primary, and each primary a replica`)];
}

function coverage(
  views: readonly (readonly ClusterNode[])[],
  failedIds: ReadonlySet<string>,
  partitions: number | undefined,
): Check[] {
  const covered = new Uint8Array(SLOTS);
  for (const { id, isPrimary, slots } of views.flat())
    if (isPrimary && !failedIds.has(id)) for (const [first, last] of slots) covered.fill(1, first, last + 1);
  const open = covered.reduce((sum, is) => sum - is, SLOTS);
  if (open === 0 || views.length === 0) return [];
  const affected = Array.from({ length: partitions ?? 0 }, (_, partition) => partition).filter(
    (partition) => covered[slotOfPartition(partition)] === 0,
  );
  const whose = affected.length === 0 ? "" : `, among them those of partitions ${affected.join(", ")}`;
  const advice =
    "wait for a failover to end, or start the server that had them; run `redis-cli --cluster check`, and " +
    "`redis-cli --cluster fix` only if their data is lost for good";
  return [failed(`${open} of ${SLOTS} slots have no primary${whose}`, advice)];
}

function failedNode({ server, isPrimary }: ClusterNode): Check {
  const found = `${server}, ${isPrimary ? "a primary" : "a replica"}, is unavailable, as the other nodes say`;
  return warning(found, "start it; if it is gone for good, run `redis-cli --cluster del-node`");
}

function alone(nodes: readonly ClusterNode[], failedIds: ReadonlySet<string>): Check[] {
  const followed = new Set(nodes.filter(({ id }) => !failedIds.has(id)).map(({ primaryId }) => primaryId));
  const unfollowed = nodes.filter(
    ({ id, isPrimary, slots }) => isPrimary && slots.length > 0 && !failedIds.has(id) && !followed.has(id),
  );
  if (unfollowed.length === 0) return [];
  const found = `without a replica: ${unfollowed.map(({ server }) => server).join(", ")}; nothing takes over if one of them fails`;
  return [warning(found, "start a replica, or add one with `redis-cli --cluster add-node --cluster-slave`")];
}
