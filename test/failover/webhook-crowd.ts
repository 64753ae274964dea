import type { Customer } from "../fault/client.ts";
import type { Fleet } from "../fault/fleet.ts";
import type { Random } from "../fault/random.ts";
import type { Manner } from "../fault/webhook-receiver.ts";
import { WebhookStage } from "../fault/webhook-stage.ts";
import type { Crowd } from "./load.ts";

/** Accounts with an endpoint that answers: of so many partitions, and with narrow limits. */
const TOLD_PARTITIONS = 16;
const TOLD_NARROW = 4;
/** Endpoints of the accounts, one row after the other. One that is disabled signs nothing, so each account has another; but for the last one, which is told by its requests' own addresses alone. */
const MANNERS: readonly Manner[][] = [
  ["answers"],
  ["fickle"],
  ["answers", "fickle"],
  ["gone", "answers"],
  ["fickle"],
  ["answers"],
  ["slow"],
  ["dead"],
  ["inner", "answers"],
  [],
];
const CALLBACK_SHARE = 0.3;
const CALLBACK_MANNERS: readonly Manner[] = ["answers", "fickle", "fickle", "inner"];

/** Some of the customers have endpoints; those that many requests come from, and one in each of some partitions. */
export async function giveEndpointsToSome(fleet: Fleet, { all }: Crowd): Promise<WebhookStage> {
  const webhooks = await WebhookStage.start(fleet);
  for (const customer of new Set([...all.slice(0, TOLD_PARTITIONS), ...all.slice(-TOLD_NARROW)]))
    await webhooks.giveEndpoint(customer, "answers");
  return webhooks;
}

/** All customers are told, by receivers of all manners. */
export async function giveEndpointsToAll(fleet: Fleet, { all }: Crowd): Promise<WebhookStage> {
  const webhooks = await WebhookStage.start(fleet, { inner: true });
  for (const [at, customer] of [...new Set(all)].entries()) {
    webhooks.watch(customer);
    for (const manner of MANNERS[at % MANNERS.length]!) await webhooks.giveEndpoint(customer, manner);
  }
  return webhooks;
}

/** The address that some requests name; undefined for the others. */
export const callbackUrlBy =
  (webhooks: WebhookStage) =>
  ({ accountId }: Customer, random: Random): string | undefined =>
    random.chance(CALLBACK_SHARE) ? webhooks.urlFor(accountId, random.pick(CALLBACK_MANNERS)) : undefined;
