import type { Table } from "../scenario.ts";
import { short } from "../targets.ts";

/** Generations a second that the fleet on paper serves. */
const RATE = 100_000;
/** How busy its cores may be: room for polls, failovers and uneven accounts. */
const BUSY = 0.5;
const PARTITIONS_MAX = 1024;

/** What a generation costs, microseconds of processor time and bytes. */
export interface GenerationCost {
  gatewayUs: number;
  primaryUs: number;
  replicaUs: number;
  replicationBytes: number;
}

/** What would serve this rate, from what one generation costs. */
export function fleetTable({ gatewayUs, primaryUs, replicaUs, replicationBytes }: GenerationCost): Table {
  const processes = (us: number): number => Math.ceil((RATE * us) / 1e6 / BUSY);
  const workers = processes(gatewayUs);
  const primaries = processes(primaryUs);
  const most = Math.ceil(PARTITIONS_MAX / primaries);
  const megabits = ((RATE / primaries) * replicationBytes * 8) / 1e6;
  const replicaBusy = ((RATE / primaries) * replicaUs) / 1e6;
  const per = (us: number, count: number): string =>
    `${count} at ${short(((RATE * us) / 1e6 / count) * 100)} % of a core`;
  return {
    columns: [`a fleet for ${RATE.toLocaleString("en")} generations a second, on paper`, ""],
    rows: [
      ["processes of gateways (`server.workers` on each host: its cores)", per(gatewayUs, workers)],
      ["primaries of a Redis Cluster, a core each", per(primaryUs, primaries)],
      ["replicas, one for each primary", `${primaries} at ${short(replicaBusy * 100)} % of a core`],
      [
        "partitions (`store.partitions`, set at the very first start)",
        `${PARTITIONS_MAX}: at most ${most} on a primary, ${short((most * primaries) / PARTITIONS_MAX)} x the mean`,
      ],
      ["replication of each primary", `${short(megabits)} Mbit/s`],
    ],
  };
}
