import { type Actor, actorText } from "../records/actor.ts";
import { recordOf } from "../records/ledger-entries.ts";
import { accountNames, endpointNames, webhooksName } from "../records/names.ts";
import type { EndpointRecord } from "../records/records.ts";
import { fieldsAndValues } from "./change.ts";
import type { Script } from "./script-definition.ts";

interface WebhookCall {
  partition: number;
  accountId: string;
  endpointId: string;
  action: "webhook.create" | "webhook.patch" | "webhook.rotate_secret" | "webhook.reseal" | "webhook.delete";
  /** Nothing is changed if the record has another revision. */
  ifRevisions?: readonly number[] | undefined;
  /** How many an account may have; for a new one. */
  endpointsMax?: number;
  /** How long the secret before goes on to sign; for another secret. */
  overlapMs?: number;
  /** Null removes a field. */
  fields?: Readonly<Record<string, string | null>>;
  actor: Actor;
}

type WebhookReply =
  | { outcome: "created" | "changed" | "unchanged"; record: EndpointRecord }
  | { outcome: "deleted" | "full" | "closed" | "stale" | "missing" };

export const webhook: Script<WebhookCall, WebhookReply> = {
  name: "webhook",
  keys: ({ partition, accountId, endpointId }) => [
    accountNames(partition, accountId).account,
    endpointNames(partition, endpointId).endpoint,
    webhooksName(partition, accountId),
  ],
  args: ({ accountId, endpointId, action, ifRevisions = [], actor, endpointsMax, overlapMs, fields }) => [
    ...[accountId, endpointId, action, ifRevisions.join(), actorText(actor)],
    ...[endpointsMax ?? 0, overlapMs ?? 0, ...fieldsAndValues(fields ?? {})],
  ],
  read([outcome, , record]) {
    switch (outcome) {
      case "created":
      case "changed":
      case "unchanged":
        return { outcome, record: recordOf(record as string[]) };
      default:
        return { outcome: outcome as "deleted" | "full" | "closed" | "stale" | "missing" };
    }
  },
};
