import type { Command } from "commander";
import { readingOfMaintenance, settingOfMaintenance } from "../admin/api/routes/maintenance.ts";
import { isMeantBy, replacedStore } from "../durability/losses/last-confirmed.ts";
import type { ListedEntry } from "../durability/losses/missing-entries.ts";
import { chargesWaitingIn } from "../durability/outbox/journal-files.ts";
import { acceptReplaced, acceptStore, type LossList, listLoss } from "../operations/store/operator-loss.ts";
import { readsOfMost } from "../redis/partition-reads.ts";
import { storedFacts } from "../redis/store-facts.ts";
import { operationCommand } from "./operation-command.ts";
import { command, group, whole } from "./options.ts";
import { print } from "./output.ts";
import { requireConfig, withAnyLayout, withConfirmedRedis } from "./redis.ts";
import { iso, table } from "./terminal.ts";

/** Rows of each table, unless `--limit` says otherwise. */
const ROWS = 50;
const ROWS_MAX = 1_000_000;

interface Flags {
  limit: number;
  json?: boolean;
}

export const storeCommand = group("store", "a Redis that came back empty or older than what it confirmed", [
  showCommand,
  acceptCommand,
]);

const withLimit = (name: string, description: string): Command =>
  command(name, description).option(
    "--limit <n>",
    "rows of each table; --json lists all",
    whole(1, ROWS_MAX),
    ROWS,
  );

function showCommand(): Command {
  return withLimit("show", "what the store is known to lack; changes nothing").action(
    async (flags: Flags) => {
      const { journal } = requireConfig().store;
      const { loss, unread } = await withAnyLayout(async (nodes) => {
        const found = await storedFacts(nodes);
        if (!isMeantBy(journal, found)) throw replacedStore(found.id);
        const reads = readsOfMost(nodes);
        const loss = await listLoss(nodes, journal, () => chargesWaitingIn(journal), reads);
        return { loss, unread: reads.unread() };
      });
      const what = unread ? "What could be read of this store" : "This store";
      const text = loss ? inWords(loss, flags.limit) : `${what} has all that it is known to have confirmed.`;
      const ok = loss === undefined;
      print({ json: { ok: ok && !unread, ...shown(loss), unread }, text, ok, unread }, flags);
    },
  );
}

function acceptCommand(): Command {
  return withLimit("accept", "use a store in spite of what it lacks; lists what is known to be lost").action(
    async (flags: Flags) => {
      const { journal, partitions } = requireConfig().store;
      const { result: loss, confirmed } = await withConfirmedRedis(async (nodes) => {
        if (await acceptReplaced(nodes, journal, () => partitions)) return undefined;
        return acceptStore(nodes, journal, chargesWaitingIn(journal));
      });
      const lacks = loss ? inWords(loss, flags.limit) : REPLACED;
      const text = `${lacks}\n\nAccepted: gateways use this store again within seconds.`;
      const ifUnconfirmed =
        "Run `tollgate store show` after a failover, and accept the store again if it asks for it.";
      print({ json: { accepted: true, ...shown(loss) }, text, confirmed, ifUnconfirmed }, flags);
    },
  );
}

const REPLACED =
  "This store is used in the place of the one that the journal folder knows. None of that one's accounts, keys and credits are in it.";

const NOTHING: LossList = {
  missing: [],
  charges: [],
  lost: { entries: [], knownUntilMs: 0, unknownBeforeMs: new Map() },
};

function shown({ missing, charges, lost } = NOTHING): Record<string, unknown> {
  const resent = new Set(charges.map(({ requestId }) => requestId));
  return {
    missing: missing.map(({ ledger, id, endsAt, behindMs, accountId, kind, credits, reference }) => ({
      ledger,
      last_known: id,
      has: endsAt,
      older_ms: behindMs,
      kind,
      account_id: accountId,
      credits,
      reference,
      unknown_before: iso(lost.unknownBeforeMs.get(ledger)),
    })),
    sent_again: charges.map(({ requestId, accountId, credits, taskId }) => ({
      request_id: requestId,
      account_id: accountId,
      credits,
      task_id: taskId,
    })),
    lost: lost.entries.map((entry) => ({
      at: iso(entry.atMs),
      kind: entry.kind,
      account_id: entry.accountId,
      credits: entry.credits,
      reference: entry.reference,
      request_id: entry.requestId,
      sent_again: isSentAgain(entry, resent),
      ledger: entry.ledger,
      id: entry.id,
    })),
    known_until: lost.knownUntilMs === 0 ? undefined : iso(lost.knownUntilMs),
    unknown_before:
      lost.unknownBeforeMs.size === 0 ? undefined : iso(Math.max(...lost.unknownBeforeMs.values())),
  };
}

const isSentAgain = ({ kind, requestId = "" }: ListedEntry, resent: ReadonlySet<string>): boolean =>
  kind === "charge" && resent.has(requestId);

function inWords(loss: LossList, limit: number): string {
  const { missing, charges } = loss;
  const resent = new Set(charges.map(({ requestId }) => requestId));
  const rest = loss.lost.entries.filter((entry) => !isSentAgain(entry, resent));
  const ledgers = missing.map(({ ledger, id, endsAt, behindMs }) => {
    const behind = endsAt === "" ? "all of it" : `${behindMs} ms`;
    return [ledger, id, endsAt || "nothing", behind, iso(loss.lost.unknownBeforeMs.get(ledger)) ?? ""];
  });
  const lost = (wanted: (kind: string) => boolean): string[][] =>
    rest.filter(({ kind }) => wanted(kind)).map(rowOf);
  const sections: [title: string, heads: string[], rows: string[][]][] = [
    ["The store lacks what it has confirmed. The ends of its ledgers:", LEDGER_HEADS, ledgers],
    [
      "Lost grants. Repeat each by hand, with its reference: one that is there changes nothing.",
      ENTRY_HEADS,
      lost((kind) => kind !== "charge" && kind !== "refund"),
    ],
    [
      "Lost charges that no gateway on this journal folder holds. Bill or write them off by hand:",
      ENTRY_HEADS,
      lost((kind) => kind === "charge"),
    ],
    [
      "Lost refunds. Nothing to do, where the charge is lost too, or the task runs again in this store:",
      ENTRY_HEADS,
      lost((kind) => kind === "refund"),
    ],
    [
      "Charges that a gateway still holds, and sends again once the store is accepted:",
      ["REQUEST", "ACCOUNT", "CREDITS", "TASK"],
      charges.map((charge) => [charge.requestId, charge.accountId, String(charge.credits), charge.taskId]),
    ],
  ];
  return [...sections.flatMap((section) => linesOf(...section, limit)), limitsOf(loss)].join("\n");
}

const LEDGER_HEADS = ["LEDGER", "LAST KNOWN", "THE STORE HAS", "OLDER BY", "NOT KNOWN BEFORE"];
const ENTRY_HEADS = ["TIME", "KIND", "ACCOUNT", "CREDITS", "REFERENCE", "REQUEST"];

const rowOf = ({ atMs, kind, accountId, credits, reference, requestId = "" }: ListedEntry): string[] => [
  iso(atMs) ?? "",
  kind,
  accountId,
  String(credits),
  reference,
  requestId,
];

function linesOf(title: string, heads: string[], rows: string[][], limit: number): string[] {
  if (rows.length === 0) return [];
  const left = rows.length - limit;
  const more = left > 0 ? [`and ${left} more: see --limit and --json`] : [];
  return [title, "", table(heads, rows.slice(0, limit)), ...more, ""];
}

function limitsOf({ lost }: LossList): string {
  const until =
    lost.knownUntilMs === 0 ? "no entry is known here" : `the newest is of ${iso(lost.knownUntilMs)}`;
  const before =
    lost.unknownBeforeMs.size === 0
      ? "Up to then the list is complete."
      : `Of ${lost.unknownBeforeMs.size} ledgers it is not complete: entries before NOT KNOWN BEFORE, ` +
        `${iso(Math.max(...lost.unknownBeforeMs.values()))} at the latest, are not known here; see the last \`ledger export\`.`;
  return (
    `Of what the store confirmed, ${until}. ${before} Gateways look once a second: what was written in the second ` +
    "after that may be lost too. Repeat the grants of that time as well."
  );
}

export const maintenanceCommand = group(
  "maintenance",
  "maintenance: generations and uploads are refused with 503, polls and credits go on",
  [
    operationCommand(settingOfMaintenance, {
      name: "on",
      about: "begin maintenance, in every gateway within two seconds",
      options: {
        "--retry-after <seconds>": "how long customers are told to wait; 60 when left out",
        "--message <text>": "what customers are told",
      },
      always: { on: true },
    }),
    operationCommand(settingOfMaintenance, { name: "off", about: "end maintenance", always: { on: false } }),
    operationCommand(readingOfMaintenance, { name: "show", about: "whether there is maintenance" }),
  ],
);
