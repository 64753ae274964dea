import type { Table } from "../scenario.ts";
import { short } from "../targets.ts";

/** Generations a second that the fleet on paper serves. */
const RATE = 100_000;
/** How busy its cores may be: room for polls, failovers and uneven accounts. */
const BUSY = 0.5;
const PARTITIONS_MAX = 1024;

/** Cost of a generation, microseconds of processor time and bytes. */
export interface GenerationCost {
  gatewayUs: number;
  primaryUs: number;
  replicaUs: number;
  replicationBytes: number;
}

/** The machines that would serve this rate, from the cost of a generation in full batches and with every call by itself. */
export function fleetTable(batched: GenerationCost, single: GenerationCost): Table {
  const [best, worst] = [batched, single].map(fleetOf) as [Fleet, Fleet];
  const row = (label: string, cell: (fleet: Fleet) => string): string[] => [label, cell(best), cell(worst)];
  return {
    columns: [
      `${RATE.toLocaleString("en")} generations a second, on paper`,
      "calls in full batches",
      "every call by itself",
    ],
    rows: [
      row("processes of gateways, a core each (`server.workers`)", ({ workers }) => String(workers)),
      row("primaries of a Redis Cluster, a core each", ({ primaries }) => String(primaries)),
      row(
        "replicas, one for each primary",
        ({ primaries, replicaBusy }) => `${primaries}, ${short(replicaBusy * 100)} % busy`,
      ),
      row(
        `the busiest of \`store.partitions: ${PARTITIONS_MAX}\` over the mean`,
        ({ primaries }) => `${short((Math.ceil(PARTITIONS_MAX / primaries) * primaries) / PARTITIONS_MAX)} x`,
      ),
      row("replication of each primary", ({ megabits }) => `${short(megabits)} Mbit/s`),
    ],
  };
}

interface Fleet {
  workers: number;
  primaries: number;
  replicaBusy: number;
  megabits: number;
}

function fleetOf({ gatewayUs, primaryUs, replicaUs, replicationBytes }: GenerationCost): Fleet {
  const processes = (us: number): number => Math.ceil((RATE * us) / 1e6 / BUSY);
  const primaries = processes(primaryUs);
  return {
    workers: processes(gatewayUs),
    primaries,
    replicaBusy: ((RATE / primaries) * replicaUs) / 1e6,
    megabits: ((RATE / primaries) * replicationBytes * 8) / 1e6,
  };
}
