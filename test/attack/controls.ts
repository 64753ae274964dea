import { join } from "node:path";
import { copySources, type Patch } from "../fault/tree.ts";
import { ROOT } from "../fault/world.ts";
import { ATTACKS } from "./attacks/index.ts";
import { type Criterion, judge } from "./criteria.ts";
import { type RunOptions, runAttack } from "./run.ts";

/** A seeded bug, and the attack that must find it. */
export interface Control {
  name: string;
  /** Name of the attack that is run against the sources with the bug. */
  attack: string;
  patches: readonly Patch[];
  /** The criterion, or the check of the attack, that must be unmet. */
  caughtBy: string;
  /** Share of the attack's full amounts and times; `SCALE` by default. */
  scale?: number;
}

/** Half of an attack is enough for a bug that it can find. */
const SCALE = 0.5;
/** A gateway with a bug need not recover. */
const PATIENCE = { recoveryMsMax: 1000, settleMsMax: 2000 };

export const CONTROLS: readonly Control[] = [
  {
    name: "generations of an account without a share of the connections",
    attack: "hanging-generations",
    patches: [
      {
        file: "src/upstream/upstream.ts",
        from: `inFlightMax: connections,
      inFlightPerFreeMax: ACCOUNT_PER_FREE_MAX,`,
        to: "inFlightMax: connections,",
      },
    ],
    caughtBy: "honest p99 at most 150 ms",
  },
  {
    name: "a large account read by the check in one call",
    attack: "large-account",
    patches: [
      { file: "src/scripts/snapshot.ts", from: "ELEMENTS_AT_ONCE = 100;", to: "ELEMENTS_AT_ONCE = 100_000;" },
    ],
    caughtBy: "no script takes Redis more than 25 ms",
    scale: 1,
  },
  {
    name: "uploads of a key without a bound",
    attack: "dripping-uploads",
    patches: [{ file: "src/gateway/upload.ts", from: "if (used >= limit)", to: "if (false)" }],
    caughtBy: "no honest request refused",
  },
  {
    name: "an address throttled for the uploads of one of its accounts",
    attack: "dripping-chunks",
    patches: [
      {
        file: "src/gateway/upload.ts",
        from: "gateway.uploadStarted(exchange.req, key.accountId);",
        to: "",
      },
    ],
    caughtBy: "another account's uploads through the same proxy take at most 2000 ms each",
  },
  {
    name: "of the connections of an address, the oldest is read first",
    attack: "dripping-neighbour",
    patches: [
      { file: "src/gateway/connections/connection-reads.ts", from: "of own.reverse()", to: "of own" },
    ],
    caughtBy: "another account's uploads from the same address take at most 2000 ms each",
    scale: 1,
  },
  {
    name: "incomplete bodies without a bound",
    attack: "endless-bodies",
    patches: [
      {
        file: "src/gateway/body.ts",
        from: "const bound = reached(keyId, bytes);",
        to: "const bound = undefined;",
      },
    ],
    caughtBy: "most bodies are refused: one key may hold a quarter of their memory",
  },
  {
    name: "no look-up behind an address that guesses keys",
    attack: "unknown-keys",
    patches: [
      {
        file: "src/gateway/authenticate.ts",
        from: "if (entry.lookUps.left < 1 || total.left < 1) return false;",
        to: "return false;",
      },
    ],
    caughtBy: "a good key that the gateway has not seen is taken, at once or a second later",
  },
  {
    name: "a token without a rate",
    attack: "small-token",
    patches: [
      {
        file: "src/admin/api/authorize.ts",
        from: "if (minute.sum + 1 > writesPerMinute)",
        to: "if (false)",
      },
    ],
    caughtBy: "a token and those that it made write no more than they may",
    scale: 1,
  },
  {
    name: "tokens that a token makes without a bound",
    attack: "small-token",
    patches: [
      {
        file: "lua/accounts/token.lua",
        from: "relatives >= family_most",
        to: "relatives >= family_most + 30",
      },
    ],
    caughtBy: "a token and those that it made make no more than they may",
    scale: 1,
  },
  {
    name: "children that outlive their token",
    attack: "small-token",
    patches: [{ file: "lua/accounts/revoke-token.lua", from: "= descendants()", to: "= {}" }],
    caughtBy: "the token ends with all that it made",
    scale: 1,
  },
  {
    name: "wrong tokens lock out right ones",
    attack: "small-token",
    patches: [
      {
        file: "src/admin/access.ts",
        from: "token: given,\n      isApiToken,",
        to: "token: given,\n      isApiToken: isApiToken && blockedMs === 0,",
      },
    ],
    caughtBy: "a right token is taken from an address of many wrong ones",
    scale: 1,
  },
  {
    name: "a line for each refused call",
    attack: "loud-strangers",
    patches: [
      {
        file: "src/admin/refusal-log.ts",
        from: "if (kind.lines >= LINES_PER_MINUTE)",
        to: "if (false)",
      },
    ],
    caughtBy: "lines about them take at most 64 KiB",
  },
  {
    name: "lines as long as what was sent",
    attack: "loud-strangers",
    patches: [
      {
        file: "src/admin/refusal-log.ts",
        from: 'path: shortened(withoutSecrets(decoded(req.url?.split("?")[0] ?? ""))),',
        to: 'path: withoutSecrets(decoded(req.url?.split("?")[0] ?? "")),',
      },
    ],
    caughtBy: "no line about them has more than 1 KiB",
  },
  {
    name: "guessed addresses of callbacks without a bound",
    attack: "callbacks",
    patches: [
      {
        file: "src/gateway/callbacks.ts",
        from: "const waitMs = callbacks?.limits.forged(address) ?? 0;",
        to: "const waitMs = address === undefined ? 1 : 0;",
      },
    ],
    caughtBy: "addresses that guess are refused as too many",
  },
  {
    name: "callbacks of one request without a bound",
    attack: "callbacks",
    patches: [{ file: "src/gateway/callbacks.ts", from: "const BURST = 5;", to: "const BURST = 50_000;" }],
    caughtBy: "one request is asked for rarely, however often it is called back about",
  },
  {
    name: "bodies of guessed callbacks read first",
    attack: "callbacks",
    patches: [
      {
        file: "src/gateway/callbacks.ts",
        from: "const target = callbacks?.addresses(config).read(token);",
        to: `await readBody(gateway, exchange, head, config.server.bodyTimeoutMs);
  const target = callbacks?.addresses(config).read(token);`,
      },
    ],
    caughtBy: "slow and huge bodies are refused before they are read",
  },
  {
    name: "a guessed callback that takes the process 5 ms",
    attack: "callbacks",
    patches: [
      {
        file: "src/gateway/callbacks.ts",
        from: "const given = Buffer.from(mac);",
        to: `const given = Buffer.from(mac);
      for (const untilMs = performance.now() + 5; performance.now() < untilMs; );`,
      },
    ],
    caughtBy: "honest p99 at most 150 ms",
  },
  {
    name: "endpoints that hang take all places",
    attack: "bad-endpoints",
    patches: [
      {
        file: "lua/webhooks/lease-deliveries.lua",
        from: "(endpoint.is_known and tonumber(per_endpoint) or 1) - call",
        to: "1000 - call",
      },
      {
        file: "lua/webhooks/settle-delivery.lua",
        from: 'result ~= "delivered" or tonumber(took_ms) > tonumber(slow_ms)',
        to: "false",
      },
      {
        file: "src/webhooks/delivery-worker.ts",
        from: "if (overtime.size >= this.#options.settings().inFlight) return;",
        to: "if (overtime.size >= 0) return;",
      },
    ],
    caughtBy: "another account's messages take at most 2000 ms",
    scale: 1,
  },
  {
    name: "answers of endpoints read to their end",
    attack: "bad-endpoints",
    patches: [
      {
        file: "src/webhooks/sender.ts",
        from: "if (this.#bytes >= ANSWER_BYTES_MAX) this.#settle",
        to: "if (this.#bytes < 0) this.#settle",
      },
    ],
    caughtBy: "endless answers are not read",
  },
];

/** Result of a seeded bug: if it was caught, and by which figure. */
export interface Caught extends Criterion {
  attack: string;
}

/** Runs the control's attack against a copy of the sources that has the bug; met when the attack finds it. */
export async function runControl(control: Control, options: Omit<RunOptions, "scale">): Promise<Caught> {
  const { name, attack: attackName, patches, caughtBy, scale = SCALE } = control;
  const attack = ATTACKS.find((each) => each.name === attackName);
  if (attack === undefined) throw new Error(`${name}: there is no attack ${attackName}`);
  const folder = join(options.folder, name.replace(/\W+/g, "-"));
  const root = copySources(ROOT, join(folder, "tree"), patches);
  const criteria = judge(await runAttack(attack, { ...options, ...PATIENCE, folder, root, scale }));
  const found = criteria.find((criterion) => criterion.name === caughtBy);
  if (found === undefined) throw new Error(`${name}: ${attackName} has no criterion "${caughtBy}"`);
  const figure = `${caughtBy}: ${found.figure}`;
  return { name, attack: attackName, met: !found.met, figure };
}
