import { account, credits, suspend } from "./accounts.ts";
import { archived, note } from "./archive.ts";
import { adjust, correct, recharge, refund, reverse } from "./credit-changes.ts";
import { maintenance, probe, workLease } from "./gateways.ts";
import { admit, bind } from "./holds.ts";
import { change, expiring, gather, issue, revoke } from "./keys.ts";
import { entries, history, ranked, rollup, trim } from "./ledger.ts";
import type { ScriptFile } from "./script-definition.ts";
import { snapshot } from "./snapshot.ts";
import { holding, refused, survey } from "./surveys.ts";
import { collect, dispute, inspect, lease, observe, reclaim } from "./tasks.ts";
import { revokeToken, token } from "./tokens.ts";
import { unclear, voidHold } from "./uncharged-holds.ts";
import { cleanDeliveries, leaseDeliveries, queueDelivery, settleDelivery, webhook } from "./webhooks.ts";

export const SCRIPTS: readonly ScriptFile[] = [
  ...[admit, bind, voidHold, unclear, inspect, observe, reclaim, dispute],
  ...[lease, collect, survey, workLease, probe, maintenance],
  ...[issue, change, revoke, expiring, account, suspend, gather, token, revokeToken],
  ...[credits, recharge, adjust, reverse, refund, correct],
  ...[entries, history, holding, snapshot, rollup, ranked, refused, archived, note, trim],
  ...[webhook, leaseDeliveries, settleDelivery, queueDelivery, cleanDeliveries],
];
