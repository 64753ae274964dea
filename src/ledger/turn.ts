import type { Connection } from "../store/connection.ts";

/** There while a check is not due yet, over all gateways. */
const LEDGER_TURN = "tg:ledger-turn";

/** True for one of all gateways, once per interval: its turn to verify the books. */
export async function takeLedgerTurn(connection: Connection, intervalMs: number): Promise<boolean> {
  const taken = await connection.command((redis) => redis.set(LEDGER_TURN, "taken", "PX", intervalMs, "NX"));
  if (taken !== null) return true;
  // The interval may have been shortened since the turn was taken; it is never made longer by this.
  await connection.command((redis) => redis.pexpire(LEDGER_TURN, intervalMs, "LT"));
  return false;
}
