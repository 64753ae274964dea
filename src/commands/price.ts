import { readFileSync } from "node:fs";
import { type Command, InvalidArgumentError } from "commander";
import { quote } from "../config/quote.ts";
import { GENERATION_ENDPOINTS, type GenerationEndpoint } from "../domain/endpoints.ts";
import { type Price, priceListAt } from "../domain/generation.ts";
import { parseJsonBytes } from "../domain/json.ts";
import { JSON_BODY_BYTES_MAX } from "../domain/limits.ts";
import { momentMs } from "../domain/moments.ts";
import { requireEndpoint } from "../operations/access/operator-values.ts";
import { readAccountObject } from "../operations/accounts/operator-accounts.ts";
import { OperatorError } from "../records/operator-error.ts";
import { command } from "./options.ts";
import { type CommandOutput, print, shownPath } from "./output.ts";
import { requireConfig, withRedis } from "./redis.ts";
import { table } from "./terminal.ts";

interface Flags {
  json?: boolean;
  account?: string;
  at?: number;
}

export function priceCommand(): Command {
  return command("price", "what a generation would cost by this machine's configuration")
    .argument("<endpoint>", `such as ${GENERATION_ENDPOINTS[0]}`)
    .argument("[body]", "file with the JSON body, or - for standard input; left out: the endpoint's prices")
    .option("--account <id>", "by the price multiplier of this account, which is read from Redis")
    .option("--at <iso>", "at this time, such as 2026-12-01T00:00:00Z; now when left out", atMs)
    .action(async (name: string, body: string | undefined, flags: Flags) => {
      const endpoint = requireEndpoint(name, "endpoint");
      const { at = Date.now() } = flags;
      const multiplier = flags.account === undefined ? "1" : await multiplierOf(flags.account);
      const query = { atMs: at, multiplier };
      print(body === undefined ? listed(endpoint, query) : priced(endpoint, readBody(body), query), flags);
    });
}

function atMs(text: string): number {
  const ms = /T/.test(text) ? momentMs(text) : undefined;
  if (ms !== undefined) return ms;
  throw new InvalidArgumentError("It must be a time with its zone such as 2026-12-01T00:00:00Z.");
}

const multiplierOf = (accountId: string): Promise<string> =>
  withRedis(async (nodes) => (await readAccountObject(nodes, accountId)).priceMultiplier);

interface PriceQuery {
  atMs: number;
  multiplier: string;
}

function readBody(name: string): Buffer {
  try {
    // 0 is standard input.
    return readFileSync(name === "-" ? 0 : name);
  } catch (error) {
    throw new OperatorError(`the body cannot be read: ${(error as Error).message}`);
  }
}

function priced(endpoint: GenerationEndpoint, bytes: Buffer, query: PriceQuery): CommandOutput {
  const refused = (problems: readonly { path: string; message: string }[]): CommandOutput => ({
    ok: false,
    json: { ok: false, endpoint, problems },
    text: `The gateway would refuse this body:\n${problems.map(({ message }) => `  ${message}`).join("\n")}`,
  });
  if (bytes.length > JSON_BODY_BYTES_MAX) {
    return refused([{ path: "", message: `it is larger than ${JSON_BODY_BYTES_MAX} bytes` }]);
  }
  const parsed = parseJsonBytes(bytes);
  if (!parsed.ok) return refused([{ path: "", message: parsed.message }]);
  const found = quote(requireConfig(), endpoint, parsed.value, query);
  if ("problems" in found) return refused(found.problems);
  const { price, listPrice, list } = found;
  const { multiplier } = query;
  const why = multiplier === "1" ? "" : `, ${listPrice} times ${multiplier}`;
  return {
    json: {
      ok: true,
      endpoint,
      price,
      list_price: listPrice,
      multiplier: Number(multiplier),
      prices_file: list.file,
    },
    text: `${endpoint}: ${price} credits${why}, by ${shownPath(list.file)}`,
  };
}

function listed(endpoint: GenerationEndpoint, { atMs, multiplier }: PriceQuery): CommandOutput {
  const { table: prices, file } = priceListAt(requireConfig().priceLists, atMs);
  const price = prices[endpoint];
  const times = multiplier === "1" ? "" : ` (the account pays ${multiplier} times this, rounded up)`;
  return {
    json: { ok: true, endpoint, price, multiplier: Number(multiplier), prices_file: file },
    text: `${endpoint}, by ${shownPath(file)}${times}:\n\n${priceText(price)}`,
  };
}

function priceText(price: Price): string {
  if (typeof price === "number") return `${price} credits`;
  if ("by_n_frames" in price) return table(["NFRAMES", "CREDITS"], Object.entries(price.by_n_frames));
  const rows = Object.entries(price.by_duration_and_quality).flatMap(([seconds, byQuality]) =>
    Object.entries(byQuality).map(([quality, credits]) => [seconds, quality, credits]),
  );
  return table(["DURATION", "QUALITY", "CREDITS"], rows);
}
