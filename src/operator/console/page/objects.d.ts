// What the management API answers, from the schemas that validate and describe it.
import type { Static, TSchema } from "typebox";
import type * as schemas from "../../manage/schemas.ts";
import type * as views from "../../manage/view-schemas.ts";

export interface List<Row> {
  data: Row[];
  next_cursor: string | null;
}

/** What replicas did not confirm has to be repeated: a failover may lose it. */
interface Confirmable {
  confirmed?: boolean;
}

type Answer<Schema extends TSchema> = Static<Schema> & Confirmable;

export type Account = Answer<typeof schemas.Account>;
export type AccountStatus = Account["status"];
export type Limits = Account["limits"];
export type Key = Answer<typeof schemas.Key>;
export type Transaction = Answer<typeof schemas.Transaction>;
export type Task = Answer<typeof schemas.Task>;
export type Release = Answer<typeof schemas.Release>;
export type Token = Answer<typeof schemas.Token>;
export type AuditRecord = Static<typeof schemas.AuditRecord>;
export type Whoami = Static<typeof schemas.WhoAmI>;
export type UsageRow = Static<typeof schemas.UsageRow>;
export type Tiers = Static<typeof schemas.Tiers>;
export type Price = Static<typeof schemas.Price>;
export type Package = Static<typeof schemas.Package>;

export type Live = Static<typeof views.Live>;
export type Overview = Static<typeof views.Overview>;
export type GatewayLine = Overview["gateways"][number];
export type Configuration = Static<typeof views.Configuration>;
export type AccountUse = Static<typeof views.AccountUse>;
export type TopKeys = Static<typeof views.TopKeys>;
export type RefusalsOfDay = Static<typeof views.RefusalsOfDay>;
export type AccountRefusals = Static<typeof views.AccountRefusals>;
export type OpenRequests = Static<typeof views.OpenRequests>;
export type OpenRequest = OpenRequests["data"][number];
export type Use = Omit<AccountUse["keys"][number], "key_id">;
export type Scope = Whoami["scopes"][number];
export interface Accounts extends List<Account> {
  unread?: { partitions: number[]; why: string };
}
export type Usage = Static<typeof schemas.Usage>;
export type SearchResults = Static<typeof views.SearchResults>;
export type Found = SearchResults["data"][number];
