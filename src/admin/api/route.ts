import { type Static, type TObject, type TSchema, Type } from "typebox";
import type { Scope } from "../../domain/scopes.ts";
import type { Actor } from "../../records/actor.ts";
import type { Grantee } from "./authorize.ts";

/** What the paths are about, in the order of the description. */
export const TAGS = {
  Accounts: "Customers: before their first key, and for their whole life.",
  Keys: "API keys, with limits and spend caps of their own.",
  Credits: "Grants, adjustments, and the ledger.",
  Tasks: "Generations, and what can be done about one.",
  Usage: "What was used, and what goes on.",
  Configuration: "Packages, prices, tiers: the configuration in force.",
  Tokens: "Tokens of this API, and what was done with them.",
} as const;
export type Tag = keyof typeof TAGS;

export type Method = "GET" | "POST" | "PATCH";

/** One call of a route, with everything in it validated. */
export interface Call<Query = unknown, Body = unknown> {
  /** Parts of the path by name, decoded. */
  params: Readonly<Record<string, string>>;
  query: Query;
  body: Body;
  /** Undefined without one. */
  idempotencyKey: string | undefined;
  /** The revisions that `If-Match` asks for: the object must have one of them. */
  ifRevisions: readonly number[] | undefined;
  /** Who calls. */
  grantee: Grantee;
  actor: Actor;
}

/** What a route answers. */
export interface Answer {
  status: 200 | 201;
  body: object;
  /** Of the object, where it can be changed by PATCH. */
  revision?: number;
  /** Whether replicas have what was written, where that is asked of them. */
  confirmed?: boolean | undefined;
}

/** An answer as the description has it. */
interface DescribedAnswer {
  description: string;
  schema: TSchema;
}

/** A path and method of the API: what it takes, what it answers, who may call it, and what it does. */
export interface Route {
  method: Method;
  /** With `{account}`, `{key}`, `{task}` or `{token}` for what is named. */
  path: string;
  /** `any`: every token may. */
  scope: Scope | "any";
  tag: Tag;
  /** Its `operationId`. */
  name: string;
  /** One line. */
  summary: string;
  description: string;
  query: TObject;
  /** Undefined where it takes none: then only an empty one is accepted, or `{}`. */
  body: TObject | undefined;
  /** Takes `Idempotency-Key`, and refuses a call without one. */
  needsIdempotencyKey: boolean;
  /** Takes `If-Match`. */
  takesIfMatch: boolean;
  /** Whether a call only revokes, suspends or closes, which a token may do beside its other writes. */
  ends?: ((body: unknown) => boolean) | undefined;
  answers: Partial<Record<200 | 201, DescribedAnswer>>;
  /** Further statuses that it may answer, beside those of all routes. */
  refusals: readonly (404 | 409 | 412)[];
  run(call: Call): Promise<Answer>;
}

const NO_QUERY = Type.Object({}, { additionalProperties: false });

type Definition<Query extends TObject, Body extends TObject> = Omit<
  Route,
  "query" | "body" | "needsIdempotencyKey" | "takesIfMatch" | "refusals" | "run"
> & {
  query?: Query;
  body?: Body;
  needsIdempotencyKey?: boolean;
  takesIfMatch?: boolean;
  refusals?: Route["refusals"];
  run(call: Call<Static<Query>, Static<Body>>): Promise<Answer>;
};

/** A route whose `run` gets query and body in the types of its schemas. */
export function route<Query extends TObject, Body extends TObject>(
  definition: Definition<Query, Body>,
): Route {
  return {
    needsIdempotencyKey: false,
    takesIfMatch: false,
    refusals: [],
    ...definition,
    query: definition.query ?? NO_QUERY,
    body: definition.body,
    // The server has validated both before it calls.
    run: definition.run as Route["run"],
  };
}
