import type { SettlementOptions } from "../../src/durability/deferred-settlements.ts";
import type { Journal } from "../../src/durability/outbox/journal.ts";

/** A journal without a disk: its settlements are lost with the process. */
export const memoryJournal: Journal = {
  watch: async () => undefined,
  attach: async () => undefined,
  append: async () => undefined,
  clear: async () => undefined,
  close: async () => undefined,
};

/** How a store settles where nothing has to outlive the process. */
export const inMemory: Pick<SettlementOptions, "journal" | "settleWithinMs"> = {
  journal: memoryJournal,
  settleWithinMs: () => 30 * 60_000,
};
