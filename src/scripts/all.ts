import { account } from "./account.ts";
import { adjust } from "./adjust.ts";
import { admit } from "./admit.ts";
import { archived } from "./archived.ts";
import { bind } from "./bind.ts";
import { change } from "./change.ts";
import { cleanDeliveries } from "./clean-deliveries.ts";
import { collect } from "./collect.ts";
import { correct } from "./correct.ts";
import { credits } from "./credits.ts";
import { dispute } from "./dispute.ts";
import { entries } from "./entries.ts";
import { expiring } from "./expiring.ts";
import { gather } from "./gather.ts";
import { history } from "./history.ts";
import { holding } from "./holding.ts";
import { inspect } from "./inspect.ts";
import { issue } from "./issue.ts";
import { lease } from "./lease.ts";
import { leaseDeliveries } from "./lease-deliveries.ts";
import { maintenance } from "./maintenance.ts";
import { note } from "./note.ts";
import { observe } from "./observe.ts";
import { probe } from "./probe.ts";
import { queueDelivery } from "./queue-delivery.ts";
import { ranked } from "./ranked.ts";
import { recharge } from "./recharge.ts";
import { reclaim } from "./reclaim.ts";
import { refund } from "./refund.ts";
import { refused } from "./refused.ts";
import { reverse } from "./reverse.ts";
import { revoke } from "./revoke.ts";
import { revokeToken } from "./revoke-token.ts";
import { rollup } from "./rollup.ts";
import type { ScriptFile } from "./script-definition.ts";
import { settleDelivery } from "./settle-delivery.ts";
import { snapshot } from "./snapshot.ts";
import { survey } from "./survey.ts";
import { suspend } from "./suspend.ts";
import { token } from "./token.ts";
import { trim } from "./trim.ts";
import { turn } from "./turn.ts";
import { unclear } from "./unclear.ts";
import { voidHold } from "./void.ts";
import { webhook } from "./webhook.ts";

export const SCRIPTS: readonly ScriptFile[] = [
  ...[admit, bind, voidHold, unclear, inspect, observe, reclaim, dispute],
  ...[lease, collect, survey, turn, probe, maintenance],
  ...[issue, change, revoke, expiring, account, suspend, gather, token, revokeToken],
  ...[credits, recharge, adjust, reverse, refund, correct],
  ...[entries, history, holding, snapshot, rollup, ranked, refused, archived, note, trim],
  ...[webhook, leaseDeliveries, settleDelivery, queueDelivery, cleanDeliveries],
];
