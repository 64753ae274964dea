import type { IncomingMessage } from "node:http";
import { dropOldest } from "../domain/bounded.ts";
import { decoded } from "../domain/endpoints.ts";
import { visible, withoutSecrets } from "../domain/operator-texts.ts";
import { createAudit, type Logger } from "../telemetry/log.ts";
import type { SignInRefusal } from "../telemetry/metrics/requests.ts";

/** Lines of one kind in a minute; the next one says how many were left out. */
const LINES_PER_MINUTE = 20;
const MINUTE_MS = 60_000;
const KINDS_MAX = 1000;
/** Of one text in a line, as JSON. With three of them a line has less than 1 KiB. */
const TEXT_BYTES_MAX = 240;

interface Kind {
  sinceMs: number;
  lines: number;
  leftOut: number;
}

export type RefusalLog = ReturnType<typeof createRefusalLog>;

/** Lines about refused requests. Whoever reaches the port can cause them, so they are few and short. */
export function createRefusalLog(options: {
  log: Logger;
  counted(reason: SignInRefusal): void;
  nowMs?: () => number;
}) {
  const { counted, nowMs = () => performance.now() } = options;
  const audit = createAudit(options.log);
  const kinds = new Map<string, Kind>();

  /** @returns how many lines of this kind were left out since the last one; undefined if this one is left out, too */
  function take(name: string): number | undefined {
    let kind = kinds.get(name);
    if (!kind) {
      dropOldest(kinds, KINDS_MAX);
      kind = { sinceMs: nowMs(), lines: 0, leftOut: 0 };
      kinds.set(name, kind);
    }
    if (nowMs() - kind.sinceMs >= MINUTE_MS) {
      kind.sinceMs = nowMs();
      kind.lines = 0;
    }
    if (kind.lines >= LINES_PER_MINUTE) {
      kind.leftOut++;
      return undefined;
    }
    kind.lines++;
    const { leftOut } = kind;
    kind.leftOut = 0;
    return leftOut;
  }

  /** @param kind lines of one kind count together */
  function write(kind: string, line: () => object, message: string): void {
    const leftOut = take(kind);
    if (leftOut === undefined) return;
    audit.info({ ...line(), ...(leftOut > 0 && { left_out: leftOut }) }, message);
  }

  return {
    write,
    counted,
    signIn(reason: SignInRefusal, req: IncomingMessage): void {
      counted(reason);
      write(reason, () => ({ reason, ...requestLine(req) }), "sign-in refused");
    },
  };
}

export const requestLine = (req: IncomingMessage): object => ({
  method: req.method,
  path: shortened(withoutSecrets(decoded(req.url?.split("?")[0] ?? ""))),
  remote_address: req.socket.remoteAddress,
});

/** A text that takes at most 240 bytes of a line. JSON leaves C1 controls as they are, which terminals obey. */
export function shortened(whole: string): string {
  const text = visible(whole);
  const bytesOf = (part: string): number => Buffer.byteLength(JSON.stringify(part));
  if (text.length <= TEXT_BYTES_MAX && bytesOf(text) <= TEXT_BYTES_MAX) return text;
  let chars = TEXT_BYTES_MAX;
  while (bytesOf(`${text.slice(0, chars)}…`) > TEXT_BYTES_MAX) chars = Math.floor(chars * 0.9);
  return `${text.slice(0, chars)}…`;
}
