import { JSON_BODY_BYTES_MAX } from "../domain/request-sizes.ts";

/** The bound that was reached: on all incomplete bodies, or on those of one key. */
type BodyBound = "body_bytes" | "body_bytes_per_key";

/** One key may use this share of the memory for bodies. */
const KEY_SHARE = 1 / 4;

/** The memory for incomplete JSON bodies. Each byte taken is returned once. */
export interface BodyBudget {
  /** @returns the bound that is reached; then nothing was taken */
  take(keyId: string, bytes: number): BodyBound | undefined;
  give(keyId: string, bytes: number): void;
}

/**
 * @param totalMax bytes of all bodies together
 * @param refused a body was refused
 */
export function createBodyBudget(totalMax: () => number, refused: (bound: BodyBound) => void): BodyBudget {
  const held = new Map<string, number>();
  let total = 0;

  function reached(keyId: string, bytes: number): BodyBound | undefined {
    const keyMax = Math.max(JSON_BODY_BYTES_MAX, totalMax() * KEY_SHARE);
    if ((held.get(keyId) ?? 0) + bytes > keyMax) return "body_bytes_per_key";
    return total + bytes > totalMax() ? "body_bytes" : undefined;
  }

  return {
    take(keyId, bytes) {
      const bound = reached(keyId, bytes);
      if (bound !== undefined) {
        refused(bound);
        return bound;
      }
      held.set(keyId, (held.get(keyId) ?? 0) + bytes);
      total += bytes;
      return undefined;
    },
    give(keyId, bytes) {
      const left = (held.get(keyId) ?? 0) - bytes;
      if (left > 0) held.set(keyId, left);
      else held.delete(keyId);
      total -= bytes;
    },
  };
}
