import type { AccountRefusals } from "../operations/accounts/refusals.ts";
import type { KeyRecord } from "../operations/keys/keys.ts";
import { iso, type PaintedCell, table } from "./terminal.ts";

const COLOURS = { active: "green", expired: "yellow", revoked: "red" } as const;

export const statusText = ({ status }: KeyRecord): PaintedCell => ({ style: COLOURS[status], text: status });

const REFUSALS_SHOWN_MAX = 20;

export const refusalsJson = ({ hours, uncounted }: AccountRefusals) => ({
  refusals: hours.map(({ atMs, keyId, outcome, count }) => ({
    ...{ hour: iso(atMs), key_id: keyId, outcome, count },
  })),
  uncounted_refusals: uncounted || undefined,
});

export function refusalsText({ hours, uncounted }: AccountRefusals): string[] {
  if (hours.length === 0) return [];
  const rows = hours
    .slice(0, REFUSALS_SHOWN_MAX)
    .map(({ atMs, keyId, outcome, count }) => [iso(atMs), keyId, outcome, count]);
  const more = hours.length - rows.length;
  return [
    table(["REFUSED IN THE HOUR OF", "KEY ID", "OUTCOME", "TIMES"], rows),
    ...(more > 0 ? [`${more} earlier rows of the last eight days: --json has them.`] : []),
    ...(uncounted > 0 ? [`${uncounted} refusals of this and other accounts had no room in the counts.`] : []),
  ];
}
