import type { Static, TSchema } from "typebox";
import type * as accounts from "../../api/account-schemas.ts";
import type * as money from "../../api/money-schemas.ts";
import type * as objects from "../../api/schemas.ts";
import type * as views from "../../api/view-schemas.ts";
import type * as webhooks from "../../api/webhook-schemas.ts";

// Answers of the management API, from the schemas that validate and describe it.

declare global {
  type Booked = import("./api.js").Booked;
  type Done = import("./dialogs.js").Done;
  type Content = import("./dom.js").Content;
  type Field = import("./fields.js").Field;
  type Place = import("./location.js").Place;
  type Context = import("./main.js").Context;
  type Column<Row> = import("./table.js").Column<Row>;

  interface List<Row> {
    data: Row[];
    next_cursor: string | null;
  }

  /** A write that replicas did not confirm has to be repeated: a failover may lose it. */
  interface Confirmable {
    confirmed?: boolean;
  }

  type Answer<Schema extends TSchema> = Static<Schema> & Confirmable;

  type Account = Answer<typeof accounts.Account>;
  type AccountStatus = Account["status"];
  type Limits = Account["limits"];
  type Key = Answer<typeof accounts.Key>;
  type Transaction = Answer<typeof objects.Transaction>;
  type Task = Answer<typeof objects.Task>;
  type TaskDetail = Answer<typeof objects.TaskDetail>;
  type TimelineEvent = Static<typeof objects.TimelineEvent>;
  type KeyRefusal = Static<typeof accounts.KeyRefusal>;
  type Release = Answer<typeof objects.Release>;
  type Token = Answer<typeof objects.Token>;
  type Webhook = Answer<typeof webhooks.Webhook>;
  type Delivery = Answer<typeof webhooks.Delivery>;
  type AuditRecord = Static<typeof objects.AuditRecord>;
  type Whoami = Static<typeof objects.WhoAmI>;
  type UsageRow = Static<typeof objects.UsageRow>;
  type Maintenance = Answer<typeof objects.Maintenance>;
  type Tiers = Static<typeof objects.Tiers>;
  type Price = Static<typeof objects.Price>;
  type Package = Static<typeof objects.Package>;

  type Live = Static<typeof views.Live>;
  type Health = Static<typeof views.Health>;
  type Overview = Static<typeof views.Overview>;
  type GatewayLine = Overview["gateways"][number];
  type Configuration = Static<typeof views.Configuration>;
  type AccountUse = Static<typeof views.AccountUse>;
  type TopKeys = Static<typeof views.TopKeys>;
  type RefusalsOfDay = Static<typeof views.RefusalsOfDay>;
  type AccountRefusals = Static<typeof views.AccountRefusals>;
  type OpenRequests = Static<typeof views.OpenRequests>;
  type OpenRequest = OpenRequests["data"][number];
  type Use = Omit<AccountUse["keys"][number], "key_id">;
  type Scope = Whoami["scopes"][number];
  type TopAccounts = Static<typeof objects.TopAccounts>;
  interface Sales extends List<Static<typeof money.Sale>> {
    amounts_paid: Record<string, string>;
    since: string | null;
    until: string | null;
    unread?: { partitions: number[]; why: string };
  }
  type ListedAccount = Static<typeof accounts.ListedAccount>;
  interface Accounts extends List<ListedAccount> {
    unread?: { partitions: number[]; why: string };
  }
  type TotalStatement = Static<typeof money.TotalStatement>;
  type Usage = Static<typeof objects.Usage>;
  type SearchResults = Static<typeof views.SearchResults>;
  type Found = SearchResults["data"][number];
}
