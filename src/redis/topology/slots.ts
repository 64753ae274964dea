/** The slots of a Redis Cluster. */
export const SLOTS = 16_384;

/** The slot of a name: CRC16 (XMODEM) of its hash tag where it has one, else of all of it. */
export function slotOf(name: string): number {
  let crc = 0;
  for (const byte of Buffer.from(/\{([^}]+)\}/.exec(name)?.[1] ?? name)) {
    crc ^= byte << 8;
    for (let bit = 0; bit < 8; bit++) crc = ((crc & 0x8000) === 0 ? crc << 1 : (crc << 1) ^ 0x1021) & 0xffff;
  }
  return crc % SLOTS;
}
