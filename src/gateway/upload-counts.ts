/** The uploads that are under way in this process, by key and in total. */
export interface UploadCounts {
  /** Counts one more, unless a limit is reached. Each that has begun must `end` once. */
  begin(
    keyId: string,
    limits: { perKeyMax: number; totalMax: number },
  ): "begun" | "key_limit" | "total_limit";
  end(keyId: string): void;
}

/**
 * Holds one number for each key that has an upload under way, and nothing for others.
 * @param changed called with the total whenever it has changed
 */
export function createUploadCounts(changed: (total: number) => void): UploadCounts {
  const byKey = new Map<string, number>();
  let total = 0;
  return {
    begin(keyId, { perKeyMax, totalMax }) {
      const ofKey = byKey.get(keyId) ?? 0;
      if (ofKey >= perKeyMax) return "key_limit";
      if (total >= totalMax) return "total_limit";
      byKey.set(keyId, ofKey + 1);
      total++;
      changed(total);
      return "begun";
    },
    end(keyId) {
      const left = (byKey.get(keyId) ?? 1) - 1;
      if (left === 0) byKey.delete(keyId);
      else byKey.set(keyId, left);
      total--;
      changed(total);
    },
  };
}
