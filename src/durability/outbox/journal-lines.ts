import { Type } from "typebox";
import { Compile } from "typebox/compile";
import { isObject } from "../../domain/json.ts";
import { keyRef } from "../../records/names.ts";
import type { Logger } from "../../telemetry/log.ts";
import { readRegularFile } from "../process-files.ts";
import type { Settlement } from "./outbox-queues.ts";

/** The format of the lines: the arguments of the scripts, by name. */
const FORMAT = 1;

/** Some 1,700 bytes for each line that a gateway may have. Nothing is written beyond it, either. */
export const FILE_BYTES_MAX = 256 * 2 ** 20;

const text = Type.String();
const ms = Type.Number({ minimum: 0 });
const whole = Type.Integer({ minimum: 0, maximum: Number.MAX_SAFE_INTEGER });
const optional = { text: Type.Optional(text), ms: Type.Optional(ms), flag: Type.Optional(Type.Boolean()) };
const request = {
  requestId: text,
  key: Type.Object({ keyId: text, accountId: text, partition: whole }),
};
const bindCall = Type.Object({
  ...request,
  price: whole,
  endpoint: text,
  retentionMs: ms,
  admittedAtMs: optional.ms,
  idempotency: Type.Optional(Type.Object({ digest: text, fingerprint: text })),
  task: Type.Object({
    taskId: text,
    data: text,
    pollMs: ms,
    maxAgeMs: ms,
    upstream: text,
  }),
});
const voidCall = Type.Object({
  ...request,
  idempotencyDigest: optional.text,
  reason: Type.Enum(["refused", "due", "unsent", "released"]),
});
const lineWith = <const Script extends string, Call extends Type.TSchema>(script: Script, call: Call) =>
  Type.Object({
    format: Type.Literal(FORMAT),
    store: optional.text,
    script: Type.Literal(script),
    atMs: ms,
    untilMs: optional.ms,
    replay: optional.flag,
    unpaid: optional.flag,
    acknowledged: optional.flag,
    call,
  });

/** The schema of a line: its price becomes a charge as it stands. The Redis names of its key follow from the ids. */
const lineSchema = Type.Union([lineWith("bind", bindCall), lineWith("void", voidCall)]);
const LINE = Compile(lineSchema);

export function lineOf({ script, storeId, call, ...settlement }: Settlement): string {
  const { atMs, untilMs, replay, unpaid, acknowledged } = settlement;
  const { keyId, accountId, partition } = call.key;
  const inFile = { ...call, key: { keyId, accountId, partition }, tiers: undefined };
  const states = { replay, unpaid, acknowledged };
  const line = { format: FORMAT, store: storeId, atMs, untilMs, ...states, script, call: inFile };
  return `${JSON.stringify(line)}\n`;
}

interface JournalContent {
  settlements: Settlement[];
  /** The format of lines that another version of Tollgate has written. */
  otherFormat?: number;
}

/** Reads a journal file. Its last line may be cut if the writer crashed. */
export function readJournalFile(path: string, log?: Logger): JournalContent {
  const content: JournalContent = { settlements: [] };
  for (const text of readRegularFile(path, FILE_BYTES_MAX).split("\n")) {
    if (text === "") continue;
    let line: unknown;
    try {
      line = JSON.parse(text);
    } catch {
      log?.warn({ file: path }, "the journal ends in half a line; its request's hold ends at the due time");
      continue;
    }
    const { format } = isObject(line) ? line : {};
    if (typeof format === "number" && format !== FORMAT) content.otherFormat = format;
    const settlement = settlementIfValid(line);
    if (settlement) content.settlements.push(settlement);
    else log?.error({ file: path, line: text }, "a line of the journal makes no sense; settle it by hand");
  }
  return content;
}

/** The settlement in one line; undefined if it makes no sense, or is of another format. */
export function settlementOfLine(text: string): Settlement | undefined {
  try {
    return settlementIfValid(JSON.parse(text));
  } catch {
    return undefined;
  }
}

const settlementIfValid = (line: unknown): Settlement | undefined =>
  LINE.Check(line) ? settlementOf(line) : undefined;

function settlementOf({
  store,
  script,
  atMs,
  untilMs,
  call,
  ...line
}: Type.Static<typeof lineSchema>): Settlement {
  const { keyId, accountId, partition } = call.key;
  const { replay = false, unpaid = false, acknowledged = false } = line;
  const states = {
    ...(replay && { replay }),
    ...(unpaid && { unpaid }),
    ...(acknowledged && { acknowledged }),
  };
  const fixed = { ...(untilMs !== undefined && { untilMs }), ...states };
  const key = keyRef(keyId, accountId, partition);
  return { script, storeId: store, atMs, ...fixed, call: { ...call, key } } as Settlement;
}
