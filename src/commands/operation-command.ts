import { InvalidArgumentError, Option } from "commander";
import type { TObject, TSchema } from "typebox";
import { requireValid } from "../admin/api/request.ts";
import type { ApiCall, Operation } from "../admin/api/route.ts";
import type { OperationSettings } from "../admin/api/services.ts";
import { requireWebhooks } from "../admin/api/services.ts";
import { archiveLookUps, type LazyArchive, lazyArchive } from "../archive/archived-reads.ts";
import { parseJson } from "../domain/json.ts";
import type { LIMITS } from "../domain/limits.ts";
import { SCOPES } from "../domain/scopes.ts";
import { findKey } from "../operations/keys/keys.ts";
import { OperatorError } from "../records/operator-error.ts";
import type { Unread } from "../redis/partition-reads.ts";
import type { RedisNodes } from "../redis/store-facts.ts";
import { optionalArchiveUrl } from "./local-archive.ts";
import { type ActorFlags, actorOf, changing, command, futureMs, type MakeCommand, whole } from "./options.ts";
import { type CommandOutput, print } from "./output.ts";
import { requireConfig, withRedis, withRedisToWrite } from "./redis.ts";
import { iso, listing, moment, table } from "./terminal.ts";

/** @param before what an earlier use of the same option made */
type Parse = (text: string, before?: unknown) => unknown;
type Parameter = string | { about: string; parse?: Parse; default?: unknown; defaultText?: string };

/** A command that runs an operation of the management API in this process, as `cli`. */
interface OperationCommand<Done> {
  name: string;
  about: string;
  /** By their form, such as `<account>`: parts of the path, else fields as the options. */
  arguments?: Readonly<Record<string, Parameter>>;
  /** Fields of body or query by their flags. The schema says how each is parsed; the second word of `<n|none>` stands for null. */
  options?: Readonly<Record<string, Parameter>>;
  /** Fields that the command's name stands for. */
  always?: Readonly<Record<string, unknown>>;
  /** The output; the API's answer when left out. @param answer makes that */
  show?(done: Done, call: ApiCall, answer: () => object): Partial<CommandOutput>;
}

type Work<Result, Done> = (operate: () => Promise<Result>, nodes: RedisNodes, call: ApiCall) => Promise<Done>;

type Flags = ActorFlags & { json?: boolean } & Record<string, unknown>;

/** Fields whose option has a shorter name. */
const FIELDS: Readonly<Record<string, string>> = {
  account: "account_id",
  after: "cursor",
  expires: "expires_at",
};

export const operationCommand = <Result>(
  operation: Operation<Result>,
  spec: OperationCommand<Result>,
): MakeCommand => workCommand(operation, (operate) => operate(), spec);

export const workCommand =
  <Result, Done>(
    operation: Operation<Result>,
    work: Work<Result, Done>,
    spec: OperationCommand<Done>,
  ): MakeCommand =>
  () => {
    const { method, path, body, query } = operation;
    const schema = body ?? query;
    const made = (method === "GET" ? command : changing)(spec.name, spec.about);
    const words = Object.entries(spec.arguments ?? {}).map(([form, given]) => {
      const { about, parse = parserOf(schema, form) } = parameterOf(given);
      if (parse) made.argument(form, about, parse);
      else made.argument(form, about);
      return form;
    });
    const fields = Object.entries(spec.options ?? {}).map(([form, given]) => {
      const option = optionOf(schema, form, parameterOf(given));
      made.addOption(option);
      return { form, attribute: option.attributeName() };
    });
    return made.action(async (...given: unknown[]) => {
      const flags = given[words.length] as Flags;
      const params: Record<string, string> = {};
      const values: Record<string, unknown> = { ...spec.always };
      for (const [at, form] of words.entries()) {
        if (path.includes(`{${nameOf(form)}}`)) params[nameOf(form)] = given[at] as string;
        else put(values, fieldOf(schema, form).path, given[at]);
      }
      for (const { form, attribute } of fields) put(values, fieldOf(schema, form).path, flags[attribute]);
      if (method === "PATCH" && Object.keys(values).length === 0) {
        const examples = fields.slice(0, 2).map(({ form }) => `--${nameOf(form)}`);
        throw new OperatorError(`nothing to change; give an option such as ${examples.join(" or ")}`);
      }
      if (body) requireValid(body, values);
      const call = callOf(params, body ? { body: values } : { query: values }, flags);
      await runOperation(operation, work, spec, call, flags);
    });
  };

function optionOf(schema: TObject, form: string, given: Exclude<Parameter, string>): Option {
  const { schema: ofField, isRequired } = fieldOf(schema, form);
  const { about, parse = parserOf(schema, form), default: initial, defaultText } = given;
  const option = new Option(form, about).makeOptionMandatory(isRequired);
  if (ofField?.enum) option.choices(ofField.enum);
  else if (parse) option.argParser(parse);
  return initial === undefined ? option : option.default(initial, defaultText);
}

const parameterOf = (given: Parameter): Exclude<Parameter, string> =>
  typeof given === "string" ? { about: given } : given;

/** The name in `--label <text>`, and in `<key-id>`. */
const nameOf = (form: string): string => {
  const name = /[a-z][a-z-]*/.exec(form)?.[0] ?? "";
  return form.startsWith("-") ? name : name.replace(/-id$/, "");
};

function fieldOf({ properties, ...all }: TObject, form: string) {
  const name = nameOf(form).replaceAll("-", "_");
  const field = FIELDS[name] ?? name;
  const limits = (properties.limits as TObject | undefined)?.properties;
  const inLimits = properties[field] === undefined && limits?.[field] !== undefined;
  return {
    path: inLimits ? ["limits", field] : [field],
    schema: (inLimits ? limits[field] : properties[field]) as JsonSchema | undefined,
    isRequired: (all.required as readonly string[] | undefined)?.includes(field) ?? false,
  };
}

interface JsonSchema extends TSchema {
  type?: string | string[];
  format?: string;
  minimum?: number;
  maximum?: number;
  enum?: string[];
  items?: { enum?: string[] };
}

/** Commander takes null for a missing value. */
const NULL = Symbol("null");

function put(values: Record<string, unknown>, path: readonly string[], value: unknown): void {
  if (value === undefined) return;
  const [name = "", ...inner] = path;
  const within = values[name] as Record<string, unknown> | undefined;
  if (inner.length === 0) values[name] = value === NULL ? null : value;
  else {
    values[name] = { ...within };
    put(values[name] as Record<string, unknown>, inner, value);
  }
}

/** How a parameter is read; undefined for one that is taken as it is. */
function parserOf(all: TObject, form: string): Parse | undefined {
  const { schema } = fieldOf(all, form);
  if (!schema) return undefined;
  const types = [schema.type].flat();
  const word = /\|(\w+)>/.exec(form)?.[1] ?? (types.includes("null") ? "" : undefined);
  const parse = typeParser(schema, types);
  if (word === undefined) return parse;
  return orNull(word, parse);
}

/** @param word stands for null */
const orNull =
  (word: string, parse: Parse = (text) => text): Parse =>
  (text) =>
    text === word ? NULL : parse(text);

function typeParser(schema: JsonSchema, types: readonly unknown[]): Parse | undefined {
  if (types.includes("integer")) return whole(schema.minimum ?? 0, schema.maximum ?? Number.MAX_SAFE_INTEGER);
  if (types.includes("number")) return decimal;
  if (types.includes("object")) return jsonObject;
  if (types.includes("array")) return (text) => wordsOf(text, schema.items?.enum);
  return schema.format === "date-time" ? (text) => iso(futureMs(text)) : undefined;
}

function decimal(text: string): number {
  if (/^\d{1,9}(\.\d{1,9})?$/.test(text)) return Number(text);
  throw new InvalidArgumentError("It must be a number such as 0.8.");
}

function jsonObject(text: string): unknown {
  if (text === "") return undefined;
  const parsed = parseJson(text);
  if (parsed.ok) return parsed.value ?? NULL;
  throw new InvalidArgumentError('It must be a JSON object such as \'{"plan":"gold"}\'.');
}

function wordsOf(text: string, known: readonly string[] | undefined): string[] {
  const words = text.split(",").map((word) => word.trim());
  const unknown = known && words.find((word) => !known.includes(word));
  if (unknown === undefined) return words;
  throw new InvalidArgumentError(`There is no ${unknown}; there are ${known?.join(", ")}.`);
}

/** Whoever uses the command line may do everything. */
const callOf = (params: ApiCall["params"], given: Partial<ApiCall>, flags: ActorFlags): ApiCall => {
  const actor = actorOf(flags);
  const nobody = { tokenId: undefined, root: undefined, accounts: undefined, expiresAtMs: undefined };
  return {
    params,
    query: {},
    body: {},
    idempotencyKey: undefined,
    ifRevisions: undefined,
    grantee: { ...nobody, label: "", scopes: SCOPES, by: actor.by },
    actor,
    ...given,
  };
};

/** The configuration and the archive of this machine, where an operation needs them. */
function ownSettings(): OperationSettings & { close(): void } {
  let archive: LazyArchive | undefined;
  return {
    config: requireConfig,
    bounds: () => ({}),
    get archive() {
      archive ??= lazyArchive(optionalArchiveUrl());
      return archive;
    },
    get lookUps() {
      return archiveLookUps(optionalArchiveUrl());
    },
    webhooks: () => requireWebhooks(requireConfig().webhooks),
    close: () => archive?.close(),
  };
}

async function runOperation<Result, Done>(
  operation: Operation<Result>,
  work: Work<Result, Done>,
  { show }: OperationCommand<Done>,
  given: ApiCall,
  flags: Flags,
): Promise<void> {
  let call = given;
  let result: Result | undefined;
  const settings = ownSettings();
  const run = async (nodes: RedisNodes): Promise<Done> => {
    if (call.params.key !== undefined) {
      const { keyId, accountId } = await findKey(nodes, call.params.key);
      call = { ...call, params: { account: accountId, key: keyId } };
    }
    const operate = async (): Promise<Result> => {
      result = await operation.operate(nodes, call, settings);
      return result;
    };
    return work(operate, nodes, call);
  };
  const { result: done, confirmed } = await (operation.method === "GET"
    ? withRedis(run).then((read) => ({ result: read, confirmed: undefined }))
    : withRedisToWrite(run)
  ).finally(settings.close);
  const answer = (): object => operation.answer(result!, call, settings).body;
  const shown = show?.(done, call, answer);
  const json = shown?.json ?? flat(answer());
  print({ text: listing(json), ...shown, json, confirmed }, flags);
}

/** An object of the management API as the command line prints it: limits beside the rest, lists in one text, nothing that is not set. */
export function flat(object: object): Record<string, unknown> {
  const fields = Object.entries(object).flatMap(([name, value]): [string, unknown][] =>
    name === "limits"
      ? Object.entries(value as object)
      : name === "effective_limits"
        ? Object.entries(value as object).map(([limit, most]) => [`effective_${limit}`, most])
        : [[name, Array.isArray(value) ? value.join() : value]],
  );
  return Object.fromEntries(fields.filter(([, value]) => value !== null));
}

type Row = Readonly<Record<string, unknown>>;

/** Shows a page. @param columns fields or cells by their headings @param gives headings of columns that give way on a narrow terminal */
export const listed =
  (
    name: string,
    columns: Readonly<Record<string, string | ((row: Row) => unknown)>>,
    gives: readonly string[],
  ) =>
  (_done: unknown, _call: unknown, answer: () => object): CommandOutput => {
    const page = answer() as { data: Row[]; next_cursor: string | null; unread?: Unread };
    const next = page.next_cursor ?? undefined;
    const rows = page.data.map((row) =>
      Object.values(columns).map((cell) => (typeof cell === "string" ? (row[cell] ?? "") : cell(row))),
    );
    return {
      json: { [name]: page.data.map(flat), next },
      text: table(Object.keys(columns), rows, { gives }),
      more: next,
      unread: page.unread,
    };
  };

export const timeIn = (field: string) => (row: Row) => moment(Date.parse(String(row[field])));

export const ACCOUNT = { "<account>": "account id" };

export const PERIOD = {
  "--from <time>": "from this day or time on",
  "--to <time>": "up to the end of this day, or before this time",
};
export const paging = (limit: number, parse?: Parse): Readonly<Record<string, Parameter>> => ({
  "--limit <n>": { about: "at most so many", default: limit, ...(parse && { parse }) },
  "--after <cursor>": "where an earlier list ended",
});

/** @param more.word what takes a limit away, beside a number */
export const limitOptions = (
  limits: readonly (typeof LIMITS)[number][],
  { word, least = 1, after = "" }: { word?: string; least?: number; after?: string } = {},
) =>
  Object.fromEntries(
    limits.map(({ name, unit, max }) => {
      const parse = whole(least, max);
      const form = `--${name.replaceAll("_", "-")} <n${word === undefined ? "" : `|${word}`}>`;
      return [form, { about: unit + after, parse: word === undefined ? parse : orNull(word, parse) }];
    }),
  );
