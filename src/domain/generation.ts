import { Type } from "typebox";
import { Compile } from "typebox/compile";
import type { GenerationEndpoint } from "./endpoints.ts";
import type { Problem } from "./errors.ts";
import { isObject } from "./json.ts";
import { DETAILS_MAX, nameOf } from "./problems.ts";
import { schemaProblems } from "./schema-problems.ts";
import { BODIES } from "./schemas.ts";
import { isOnSourceHost } from "./urls.ts";

export type Price =
  | number
  | { readonly by_duration_and_quality: Readonly<Record<"10" | "15", Readonly<Record<Quality, number>>>> }
  | { readonly by_n_frames: Readonly<Record<"10" | "15" | "25", number>> };

type Quality = "standard" | "high";

export type PriceTable = Readonly<Record<GenerationEndpoint, Price>>;

export interface PricedBody {
  duration?: number;
  quality?: string;
  nFrames?: string;
}

/** @throws RangeError when validation and price table disagree */
export function priceOf(table: PriceTable, endpoint: GenerationEndpoint, body: PricedBody): number {
  const price = table[endpoint];
  if (typeof price === "number") return price;
  const credits =
    "by_n_frames" in price
      ? price.by_n_frames[body.nFrames as "10"]
      : price.by_duration_and_quality[`${body.duration}` as "10"]?.[body.quality as Quality];
  if (credits === undefined) throw new RangeError(`no price for ${endpoint}`);
  return credits;
}

export interface PriceList {
  readonly fromMs: number;
  /** Its file's name without the folder; no two lists have the same, and it has no space. */
  readonly name: string;
  /** The whole path. */
  readonly file: string;
  readonly table: PriceTable;
}

/** @param lists oldest first; the first is in force before its time, too */
export function priceListAt(lists: readonly PriceList[], atMs: number): PriceList {
  let found = lists[0]!;
  for (const list of lists) if (list.fromMs <= atMs) found = list;
  return found;
}

/** How far a gateway's estimate of the store's clock may be off. */
const CLOCK_SLACK_MS = 60_000;

/** Also what ADMIT picks from by the store's clock: the list in force a minute ago, and those that begin within a minute (price.lua). */
export function pricesAround(
  lists: readonly PriceList[],
  endpoint: GenerationEndpoint,
  body: PricedBody,
  atMs: number,
): { price: number; prices?: string } {
  if (lists.length === 1) return { price: priceOf(lists[0]!.table, endpoint, body) };
  const price = priceOf(priceListAt(lists, atMs).table, endpoint, body);
  const before = priceListAt(lists, atMs - CLOCK_SLACK_MS);
  const words = (list: PriceList): string => `${priceOf(list.table, endpoint, body)} ${list.name}`;
  const later = lists
    .filter(({ fromMs }) => fromMs > before.fromMs && fromMs <= atMs + CLOCK_SLACK_MS)
    .map((list) => `${list.fromMs} ${words(list)}`);
  return { price, prices: [words(before), ...later].join(" ") };
}

/** Inclusive. In floating point 10 - 9.95 is a little more than 0.05. */
const TOLERANCE_SECONDS = 0.05;
const FLOAT_NOISE = 1e-9;

interface Body extends PricedBody {
  videoUrl?: string;
  shots?: { Scene: string; duration: number }[];
  callBackUrl?: string;
}

type Members = ReadonlyMap<string, { isOptional: boolean; default: unknown; items: Members | undefined }>;

/** `text` is the exact JSON that goes upstream. */
export interface ValidBody {
  body: Readonly<Body>;
  text: string;
}

type Validation = ({ ok: true } & ValidBody) | { ok: false; problems: Problem[] };

const validators = Object.fromEntries(
  Object.entries(BODIES).map(([endpoint, schema]) => [
    endpoint,
    { validator: Compile(schema), members: membersOf(schema) },
  ]),
);

/** No body of the API is nested deeper. */
function membersOf(schema: Type.TObject): Members {
  const entries = Object.entries(schema.properties).map(([name, property]) => {
    const items = Type.IsArray(property) && Type.IsObject(property.items) ? property.items : undefined;
    const member = {
      isOptional: Type.IsOptional(property),
      default: "default" in property ? property.default : undefined,
      items: items && membersOf(items),
    };
    return [name, member] as const;
  });
  return new Map(entries);
}

/** Validates the body and writes it out in the schema's order: what is priced is what is sent. */
export function validateGeneration(
  endpoint: GenerationEndpoint,
  given: unknown,
  sourceHost: string,
): Validation {
  const { validator, members } = validators[endpoint]!;
  let value = given;
  let wellTyped = validator.Check(value);
  if (!wellTyped && isObject(given)) {
    value = withoutNulls(members, given);
    wellTyped = validator.Check(value);
  }
  const problems = wellTyped ? [] : schemaProblems(validator.Type(), value);
  if (isObject(value)) problems.push(...furtherRules(endpoint, value, sourceHost));
  if (problems.length > 0 || !wellTyped) return { ok: false, problems: problems.slice(0, DETAILS_MAX) };
  const body = inOrder(members, value as Record<string, unknown>);
  const text = JSON.stringify(body);
  // JSON.stringify escapes only lone surrogates.
  const broken = /\\ud[89a-f]/i.test(text) ? [...illFormed(value, "").take(DETAILS_MAX)] : [];
  if (broken.length > 0) return { ok: false, problems: broken };
  return { ok: true, body: body as Body, text };
}

/** Rules beyond the schema, for fields of the right type. */
function furtherRules(
  endpoint: GenerationEndpoint,
  value: Body & Record<string, unknown>,
  sourceHost: string,
): Problem[] {
  const problems: Problem[] = [];
  const { videoUrl, shots, nFrames } = value;
  const removesWatermark = endpoint === "gen2/watermark-remove" && typeof videoUrl === "string";
  if (removesWatermark && !isOnSourceHost(videoUrl, sourceHost)) {
    const prefix = `${sourceHost}/`;
    const rule = videoUrl.startsWith(prefix) ? "be a well-formed URL" : `begin with ${prefix}`;
    problems.push({ path: "/videoUrl", message: `videoUrl must ${rule}` });
  }
  const addsUp =
    endpoint === "gen2-pro/storyboard" &&
    Array.isArray(shots) &&
    shots.length > 0 &&
    shots.every((shot) => Number.isFinite(shot?.duration));
  if (addsUp && typeof nFrames === "string" && /^\d{1,3}$/.test(nFrames)) {
    const seconds = shots.reduce((sum, { duration }) => sum + duration, 0);
    if (Math.abs(seconds - Number(nFrames)) > TOLERANCE_SECONDS + FLOAT_NOISE) {
      const sum = Number(seconds.toFixed(6));
      problems.push({
        path: "/shots",
        message: `shots durations add up to ${sum}, but must add up to nFrames (${nFrames}) within 0.05`,
      });
    }
  }
  return problems;
}

/** Many clients write `null` for an absent member. */
const withoutNulls = (members: Members, value: Record<string, unknown>): Record<string, unknown> =>
  Object.fromEntries(
    Object.entries(value).filter(([name, item]) => item !== null || !members.get(name)?.isOptional),
  );

function inOrder(members: Members, value: Record<string, unknown>): Record<string, unknown> {
  const ordered: Record<string, unknown> = {};
  for (const [name, member] of members) {
    const given = value[name] === undefined ? member.default : value[name];
    if (given === undefined) continue;
    const { items } = member;
    ordered[name] = items && Array.isArray(given) ? given.map((item) => inOrder(items, item)) : given;
  }
  return ordered;
}

function* illFormed(value: unknown, path: string): Generator<Problem, undefined> {
  if (typeof value === "string" && !value.isWellFormed())
    yield { path, message: `${nameOf(path)} has half a surrogate pair` };
  if (typeof value !== "object" || value === null) return;
  for (const [name, item] of Object.entries(value)) yield* illFormed(item, `${path}/${name}`);
}
