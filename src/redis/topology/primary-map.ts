import { META, partitionNames } from "../../records/names.ts";
import type { Primary } from "../primary.ts";
import { SLOTS, slotOf } from "./cluster-slots.ts";
import type { Placement } from "./placement.ts";

/** Never changes: another arrangement is another map, which the connection's `replaceMap` puts in force. Decision 0042. */
export interface PrimaryMap {
  of(partition: number): Primary;
  /** The primary of a Redis name: of one outside the partitions, such as `tg:meta`, or of any other. */
  ofName(name: string): Primary;
  readonly all: readonly Primary[];
  readonly hasGaps?: boolean;
  /** For the name that the primary's probe writes; beyond the store's partitions if it has none. */
  partitionOn(primary: Primary): number;
}

/** The primaries that requests use now: those of the map in force. */
export class PrimariesInUse {
  map: PrimaryMap;

  constructor(map: PrimaryMap) {
    this.map = map;
  }

  readonly of = (partition: number): Primary => this.map.of(partition);

  readonly ofName = (name: string): Primary => this.map.ofName(name);

  readonly isUsable = (): boolean => this.map.all.some(({ breaker }) => !breaker.isOpen);

  /** @throws GatewayError `store_unavailable` while its primary is away or it is frozen; without a partition, while all primaries are away */
  readonly requireUsable = (partition?: number): void => {
    if (partition !== undefined) this.map.of(partition).requireUsable(partition);
    else if (!this.isUsable()) this.map.ofName(META).requireUsable();
  };
}

export const everythingOn = (primary: Primary): PrimaryMap => ({
  of: () => primary,
  ofName: () => primary,
  all: [primary],
  partitionOn: () => 0,
});

/** The map before the servers of the store have said where its primaries are. @param absent is never usable */
export const nothingPlaced = (absent: Primary): PrimaryMap => ({ ...everythingOn(absent), all: [] });

/** @param opened the primary of a name of the placement @param absent of slots that nobody serves; never usable */
export function mapOf(placement: Placement, opened: (name: string) => Primary, absent: Primary): PrimaryMap {
  const bySlot = Array.from({ length: SLOTS }, (_, slot): Primary => {
    const placed = placement.ofSlot(slot);
    return placed === undefined ? absent : opened(placed.name);
  });
  const all = placement.primaries.map(({ name }) => opened(name));
  const [only] = all;
  if (only !== undefined && bySlot.every((primary) => primary === only)) return everythingOn(only);
  const ofName = (name: string): Primary => bySlot[slotOf(name)]!;
  const inPartition = (partition: number): Primary => ofName(partitionNames(partition).ledger);
  const probed = once((primary: Primary) => firstPartition(primary, inPartition));
  return { ofName, all, hasGaps: bySlot.includes(absent), of: once(inPartition), partitionOn: probed };
}

/** Keeps what a function has returned for each argument; partitions and primaries are few. */
function once<Argument, Result>(work: (argument: Argument) => Result): (argument: Argument) => Result {
  const results = new Map<Argument, Result>();
  return (argument) => {
    const known = results.get(argument);
    if (known !== undefined) return known;
    const result = work(argument);
    results.set(argument, result);
    return result;
  };
}

/** Numbers far beyond the partitions of a store have each slot many times. */
const PARTITIONS_TRIED = 200_000;

function firstPartition(primary: Primary, inPartition: (partition: number) => Primary): number {
  for (let partition = 0; partition < PARTITIONS_TRIED; partition++)
    if (inPartition(partition) === primary) return partition;
  throw new Error("this primary has no slot");
}
