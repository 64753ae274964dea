import type { Static, TSchema } from "typebox";
import type * as accounts from "../../api/account-schemas.ts";
import type * as money from "../../api/money-schemas.ts";
import type * as objects from "../../api/schemas.ts";
import type * as views from "../../api/view-schemas.ts";
import type * as webhooks from "../../api/webhook-schemas.ts";

// Answers of the management API, from the schemas that validate and describe it.

export interface List<Row> {
  data: Row[];
  next_cursor: string | null;
}

/** A write that replicas did not confirm has to be repeated: a failover may lose it. */
interface Confirmable {
  confirmed?: boolean;
}

type Answer<Schema extends TSchema> = Static<Schema> & Confirmable;

export type Account = Answer<typeof accounts.Account>;
export type AccountStatus = Account["status"];
export type Limits = Account["limits"];
export type Key = Answer<typeof accounts.Key>;
export type Transaction = Answer<typeof objects.Transaction>;
export type Task = Answer<typeof objects.Task>;
export type TaskDetail = Answer<typeof objects.TaskDetail>;
export type TimelineEvent = Static<typeof objects.TimelineEvent>;
export type KeyRefusal = Static<typeof accounts.KeyRefusal>;
export type Release = Answer<typeof objects.Release>;
export type Token = Answer<typeof objects.Token>;
export type Webhook = Answer<typeof webhooks.Webhook>;
export type Delivery = Answer<typeof webhooks.Delivery>;
export type AuditRecord = Static<typeof objects.AuditRecord>;
export type Whoami = Static<typeof objects.WhoAmI>;
export type UsageRow = Static<typeof objects.UsageRow>;
export type Tiers = Static<typeof objects.Tiers>;
export type Price = Static<typeof objects.Price>;
export type Package = Static<typeof objects.Package>;

export type Live = Static<typeof views.Live>;
export type Health = Static<typeof views.Health>;
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
export type TopAccounts = Static<typeof objects.TopAccounts>;
export interface Sales extends List<Static<typeof money.Sale>> {
  amounts_paid: Record<string, string>;
  since: string | null;
  unread?: { partitions: number[]; why: string };
}
export type ListedAccount = Static<typeof accounts.ListedAccount>;
export interface Accounts extends List<ListedAccount> {
  unread?: { partitions: number[]; why: string };
}
export type TotalStatement = Static<typeof money.TotalStatement>;
export type Usage = Static<typeof objects.Usage>;
export type SearchResults = Static<typeof views.SearchResults>;
export type Found = SearchResults["data"][number];
