import { type ApiAnswer, refusal, success } from "../domain/envelope.ts";
import { type Call, storeStep } from "./http-exchange.ts";
import { evictInvalidKey, refuseBarred } from "./inspect-key.ts";
import { rememberGoodKey } from "./key-memory.ts";

/** GET /credits: the account, and the limits that are enforced for this key. */
export async function credits(call: Call): Promise<ApiAnswer> {
  const { gateway, config, exchange, key } = call;
  const account = await storeStep(call, "CREDITS", gateway.store.credits(key, config.tiers));
  exchange.state = account.state;
  if (account.outcome === "unknown_key") return refusal(evictInvalidKey(call), exchange.shownId);
  rememberGoodKey(call, account, account.status);
  if (account.outcome === "account_suspended") return refusal(refuseBarred(account.status), exchange.shownId);
  return success(
    JSON.stringify({
      balance: account.balance,
      total_used: account.totalUsed,
      total_requests: account.totalRequests,
      tier: account.tier,
      limits: account.limits,
      recent_transactions: account.recent,
    }),
  );
}
