import { existsSync } from "node:fs";
import path from "node:path";
import { type TSchema, Type } from "typebox";
import { GENERATION_ENDPOINTS, type GenerationEndpoint } from "../domain/endpoints.ts";
import { type PriceList, type PriceTable, priceListAt } from "../domain/generation.ts";
import { isObject } from "../domain/json.ts";
import { momentMs } from "../domain/moments.ts";
import { ConfigError, type ConfigProblem } from "./problems.ts";
import { validate } from "./validate.ts";
import { type FileReader, placed, readYaml, type YamlFile } from "./yaml-file.ts";

interface ReadLists {
  /** Oldest first; undefined if there are problems. */
  lists: readonly PriceList[] | undefined;
  problems: readonly ConfigProblem[];
}

/** Only the default comes from the package: another file's prices must not replace missing ones. */
export function readPriceLists(
  settings: unknown,
  { configFile, defaultFile }: { configFile: string; defaultFile: string },
  yaml: YamlFile,
  read: FileReader,
): ReadLists {
  const named = isObject(settings) ? settings.prices : undefined;
  const resolved = (name: string): string => path.resolve(path.dirname(configFile), name);
  if (!Array.isArray(named)) {
    const file = typeof named === "string" ? resolved(named) : defaultFile;
    return tableOf(file, { from: undefined, keys: ["prices"] }, yaml, read);
  }
  // The schema reports values that are no list.
  const given = named.filter((one) => isObject(one) && typeof one.file === "string") as {
    from?: string;
    file: string;
  }[];
  const parts = given.map(({ from, file }, at) =>
    tableOf(resolved(file), { from, keys: ["prices", String(at), "file"] }, yaml, read),
  );
  const lists = parts.flatMap((part) => part.lists ?? []);
  const problems = [...parts.flatMap((part) => part.problems), ...orderProblems(given, yaml)];
  return { lists: problems.length > 0 || lists.length === 0 ? undefined : lists, problems };
}

function tableOf(
  file: string,
  { from, keys }: { from: string | undefined; keys: string[] },
  yaml: YamlFile,
  read: FileReader,
): ReadLists {
  const fromMs = from === undefined ? 0 : (momentMs(from) ?? 0);
  try {
    const name = encodeURIComponent(path.basename(file));
    return { lists: [{ fromMs, name, file, table: loadPrices(file, read) }], problems: [] };
  } catch (error) {
    if (!(error instanceof ConfigError)) throw error;
    const message = "there is no such price file; a relative path begins at the config file's folder";
    const problem = placed({ keys, message }, yaml);
    return { lists: undefined, problems: existsSync(file) ? error.problems : [problem] };
  }
}

/** Each but the first needs a time, later than the one before; a name stands for one file in the ledger. */
function orderProblems(given: readonly { from?: string; file: string }[], yaml: YamlFile): ConfigProblem[] {
  return given.flatMap(({ from, file }, at) => {
    const refused = (name: string, message: string, code?: string) => [
      placed({ keys: ["prices", String(at), name], message, ...(code && { code }) }, yaml),
    ];
    const others = given.slice(0, at);
    const isTaken = others.some(
      (other) =>
        path.basename(other.file) === path.basename(file) &&
        path.normalize(other.file) !== path.normalize(file),
    );
    if (isTaken)
      return refused("file", "has the name of another price file: ledger entries could not be told apart");
    if (at === 0) return [];
    if (from === undefined)
      return refused("from", "is missing: only the first list may begin at no time", "price_lists_overlap");
    const previous = others.at(-1)?.from ?? "";
    // The schema reports what is no time.
    const afterMs = (momentMs(from) ?? Number.NaN) - (momentMs(previous) ?? Number.NaN);
    if (!(afterMs <= 0)) return [];
    return refused(
      "from",
      afterMs === 0
        ? `is the millisecond at which the list before begins, ${previous}: two lists overlap; give each its own`
        : `is before that of the list before, ${previous}: two lists overlap; put them in the order of their times`,
      "price_lists_overlap",
    );
  });
}

/** All prices as they are compared and shown: of a single list its table, else each under its name and time. */
export type WrittenPrices = PriceTable | { readonly [nameAndTime: string]: PriceTable };

export function writtenPrices(lists: readonly PriceList[]): WrittenPrices {
  const [first, ...others] = lists;
  if (first && others.length === 0) return first.table;
  return Object.fromEntries(
    lists.map(({ fromMs, name, table }) => [`${name} from ${new Date(fromMs).toISOString()}`, table]),
  );
}

export const isSingleTable = (prices: WrittenPrices): prices is PriceTable =>
  Object.hasOwn(prices, GENERATION_ENDPOINTS[0]);

/** The list in force by this machine's clock: for what is shown. Charges follow the clock of Redis. */
export const listInForce = ({ priceLists }: { priceLists: readonly PriceList[] }): PriceList =>
  priceListAt(priceLists, Date.now());

const strict = { additionalProperties: false };

const credits = Type.Integer({
  minimum: 1,
  maximum: 1_000_000_000,
  description: "Whole credits.",
  "x-expects": "a whole number of credits",
});

const byQuality = Type.Object({ standard: credits, high: credits }, strict);

const byDurationAndQuality = Type.Object(
  { by_duration_and_quality: Type.Object({ "10": byQuality, "15": byQuality }, strict) },
  strict,
);

const byFrames = Type.Object(
  { by_n_frames: Type.Object({ "10": credits, "15": credits, "25": credits }, strict) },
  strict,
);

export const PriceTableSchema = Type.Object(
  {
    "gen2/text-to-video": credits,
    "gen2/image-to-video": credits,
    "gen2-pro/text-to-video": Type.Union([credits, byDurationAndQuality]),
    "gen2-pro/image-to-video": Type.Union([credits, byDurationAndQuality]),
    "gen2/watermark-remove": credits,
    "gen2-pro/storyboard": Type.Union([credits, byFrames]),
  } satisfies Record<GenerationEndpoint, TSchema>,
  { ...strict, description: "Credits per request, by the path below /api/v1/." },
);

export function loadPrices(file: string, read?: FileReader): PriceTable {
  const yaml = readYaml(file, "give each endpoint its price", read);
  const checked = validate(PriceTableSchema, yaml.data ?? {});
  const problems = [...yaml.problems, ...checked.problems.map((rule) => placed(rule, yaml))];
  if (checked.value === undefined || problems.length > 0) throw new ConfigError(problems);
  return checked.value;
}
