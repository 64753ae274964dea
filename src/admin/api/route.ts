import type { Static, TObject, TSchema } from "typebox";
import type { Scope } from "../../domain/scopes.ts";
import type { Actor } from "../../records/actor.ts";
import type { Unread } from "../../redis/partition-reads.ts";
import type { RedisNodes } from "../../redis/store-facts.ts";
import type { Grantee } from "./authorize.ts";
import { object } from "./field-schemas.ts";
import type { OperationSettings, Services } from "./services.ts";
import { shownAs } from "./shown.ts";

export const TAGS = {
  Accounts: "Customers: before their first key, and for their whole life.",
  Keys: "API keys, with limits and spend caps of their own.",
  Credits: "Grants, adjustments, and the ledger.",
  Tasks: "Generations, and what can be done about one.",
  Usage: "What was used, and what goes on.",
  Webhooks: "Where an account is told of events, and what it was told.",
  Configuration: "Packages, prices, tiers: the configuration in force.",
  Tokens: "Tokens of this API, and what was done with them.",
} as const;
type Tag = keyof typeof TAGS;

type Method = "GET" | "POST" | "PUT" | "PATCH" | "DELETE";

/** One call of an operation, by HTTP or by the command line. */
export interface ApiCall<Query = unknown, Body = unknown> {
  /** Parts of the path by name, decoded. */
  params: Readonly<Record<string, string>>;
  query: Query;
  body: Body;
  idempotencyKey: string | undefined;
  /** The revisions that `If-Match` asks for: the object must have one of them. */
  ifRevisions: readonly number[] | undefined;
  grantee: Grantee;
  actor: Actor;
}

export interface Answer {
  status: 200 | 201;
  /** As its schema describes it, or as records have it: `shownAs` makes the one of the other. */
  body: object;
  revision?: number;
  confirmed?: boolean | undefined;
  /** For `Accept: text/csv`. `next`: the cursor of the next page. It is refused with `unread`: a table does not say what it lacks. */
  csv?: { text: string; next?: string | undefined; unread?: Unread | undefined };
}

export const page = (data: readonly object[], next?: string, more: object = {}): Answer => ({
  status: 200,
  body: { data, next_cursor: next ?? null, ...more },
});

interface DescribedAnswer {
  description: string;
  schema: TSchema;
  csv?: boolean;
}

export interface Route {
  method: Method;
  /** With `{account}`, `{key}` and the like for what is named. */
  path: string;
  /** `any`: every token may. */
  scope: Scope | "any";
  tag: Tag;
  name: string;
  summary: string;
  description: string;
  query: TObject;
  body: TObject | undefined;
  needsIdempotencyKey: boolean;
  takesIfMatch: boolean;
  onlyReads: boolean;
  /** True for a call that only revokes, suspends or closes: a token may do that beside its other writes. */
  ends?: ((body: unknown) => boolean) | undefined;
  answers: Partial<Record<200 | 201, DescribedAnswer>>;
  /** Beside 404 for what its path names. */
  refusals: readonly (404 | 409 | 412)[];
  run(call: ApiCall, services: Services): Promise<Answer>;
}

/** A route to the store. The command line calls `operate` in its own process. */
export interface Operation<Result> extends Route {
  operate(nodes: RedisNodes, call: ApiCall, settings: OperationSettings): Promise<Result>;
  answer(result: Result, call: ApiCall, settings: OperationSettings): Answer;
}

const NO_QUERY = object({});

const TAG_OF: Readonly<Record<string, Tag>> = {
  accounts: "Accounts",
  keys: "Keys",
  credits: "Credits",
  tasks: "Tasks",
  usage: "Usage",
  webhooks: "Webhooks",
  tokens: "Tokens",
  audit: "Tokens",
};

type Declared<Query extends TObject, Body extends TObject> = Pick<
  Route,
  "scope" | "name" | "summary" | "description" | "ends" | "answers"
> &
  Partial<Pick<Route, "tag" | "needsIdempotencyKey" | "takesIfMatch" | "onlyReads" | "refusals">> & {
    query?: Query;
    body?: Body;
  };

type Target = `${Method} /${string}`;

function declared<Query extends TObject, Body extends TObject>(target: Target, given: Declared<Query, Body>) {
  const [method, path] = target.split(" ") as [Method, string];
  return {
    ...{ method, path, tag: TAG_OF[given.scope.split(":")[0]!] ?? "Configuration" },
    ...{ needsIdempotencyKey: false, takesIfMatch: false, onlyReads: false, ...given },
    // An object that the path names may not exist.
    refusals: [...(path.includes("{") ? ([404] as const) : []), ...(given.refusals ?? [])],
    ...{ query: given.query ?? NO_QUERY, body: given.body },
  };
}

/** A route whose `run` gets query and body in the types of their schemas: the server has validated both. */
export const route = <Query extends TObject, Body extends TObject>(
  target: Target,
  given: Declared<Query, Body> & {
    run(call: ApiCall<Static<Query>, Static<Body>>, services: Services): Promise<Answer>;
  },
): Route => ({
  ...declared(target, given),
  run: async (call, services) => inSchema(given, await (given.run as Route["run"])(call, services)),
});

const inSchema = ({ answers }: Pick<Route, "answers">, { body, ...answer }: Answer): Answer => ({
  ...answer,
  body: shownAs(answers[answer.status]!.schema, body) as object,
});

/** A route to the store: a GET reads, all others, unless they only read, write where nothing is lost, and say whether replicas have it. */
export function operation<Query extends TObject, Body extends TObject, Result>(
  target: Target,
  given: Declared<Query, Body> & {
    operate(
      nodes: RedisNodes,
      call: ApiCall<Static<Query>, Static<Body>>,
      settings: OperationSettings,
    ): Promise<Result>;
    answer(
      result: NoInfer<Result>,
      call: ApiCall<Static<Query>, Static<Body>>,
      settings: OperationSettings,
    ): Answer;
  },
): Operation<Result> {
  const { operate, answer: answered } = given as Pick<Operation<Result>, "operate" | "answer">;
  const route = declared(target, given);
  const answer: Operation<Result>["answer"] = (...of) => inSchema(route, answered(...of));
  return {
    ...route,
    operate,
    answer,
    async run(call, services) {
      const work = (nodes: RedisNodes) => operate(nodes, call, services);
      if (route.method === "GET" || route.onlyReads)
        return answer(await services.session.run(work), call, services);
      const { result, confirmed } = await services.session.write(work);
      return { ...answer(result, call, services), confirmed };
    },
  };
}
