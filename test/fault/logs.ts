import { existsSync, readFileSync } from "node:fs";
import { logFileOf } from "./gateways.ts";
import { type FaultEvent, NO_ANSWER, UNCLEAR } from "./history.ts";

/** Lines of the gateways' logs that name a settlement which is not made, or may not be, or an answer that came too late or was not clear. */
const SAID: readonly [kind: string, words: string][] = [
  ["given up", '"msg":"a settlement is too old to be sent; settle it by hand"'],
  ["only in memory", '"msg":"the journal cannot be written; a crash now loses this charge"'],
  [NO_ANSWER, '"outcome":"upstream_timeout"'],
  [UNCLEAR, '"outcome":"upstream_unclear"'],
];

export function faultsInLogs(folder: string, names: readonly string[]): FaultEvent[] {
  const files = names.map((name) => ({ gateway: name, file: logFileOf(folder, name) }));
  return files
    .filter(({ file }) => existsSync(file))
    .flatMap(({ gateway, file }) => {
      const lines = readFileSync(file, "utf8").split("\n");
      return SAID.flatMap(([kind, words]) =>
        lines
          .filter((line) => line.includes(words))
          .map((line) => JSON.parse(line) as { request_id: string; time: string; detail?: string })
          .map(({ request_id: phase, time, detail = "" }) => ({
            kind,
            gateway,
            phase,
            atMs: Date.parse(time),
            detail,
          })),
      );
    });
}
