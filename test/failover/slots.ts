/** Slots of Redis Cluster. */
export const SLOTS = 16_384;
export const PARTITIONS = 64;

/** The first and the last slot of a primary, both included. */
export type SlotRange = readonly [first: number, last: number];

/** The slot of a hash tag: CRC16 (XMODEM) modulo 16384. */
export function slotOf(tag: string): number {
  let crc = 0;
  for (const byte of Buffer.from(tag)) {
    crc ^= byte << 8;
    for (let bit = 0; bit < 8; bit++) crc = ((crc & 0x8000) !== 0 ? (crc << 1) ^ 0x1021 : crc << 1) & 0xffff;
  }
  return crc % SLOTS;
}

/** The slot of any name: that of its hash tag where it has one. */
export const slotOfName = (name: string): number => slotOf(/\{([^}]+)\}/.exec(name)?.[1] ?? name);

export const slotOfPartition = (partition: number): number =>
  slotOf(`p${String(partition).padStart(2, "0")}`);

/**
 * Ranges that give each primary as many partitions as the others, or one more. An even split of the slots gives one of
 * three primaries 24 of 64 partitions.
 */
export function evenRanges(primaries: number, partitions = PARTITIONS): SlotRange[] {
  const slots = Array.from({ length: partitions }, (_, partition) => slotOfPartition(partition)).sort(
    (a, b) => a - b,
  );
  const ends = Array.from({ length: primaries }, (_, at) =>
    at === primaries - 1 ? SLOTS - 1 : slots[Math.floor((partitions * (at + 1)) / primaries) - 1]!,
  );
  return ends.map((end, at) => [at === 0 ? 0 : ends[at - 1]! + 1, end] as const);
}
