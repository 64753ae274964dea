import { type Connection, createClient } from "./connection.ts";
import { type Verification, verifyLedger } from "./ledger.ts";

/** Pages of a ledger are larger than a script's reply. */
const VERIFY_COMMAND_TIMEOUT_MS = 10_000;
/** There while a check is not due yet, over all gateways. */
const LEDGER_TURN = "tg:ledger-turn";

/**
 * Checks the books if no gateway has within the interval, on a connection of its own: it reads much, and nobody waits
 * for it.
 * @returns undefined when it is not this gateway's turn
 */
export async function verifyInTurn(
  connection: Connection,
  redisUrl: string,
  intervalMs: number,
): Promise<Verification | undefined> {
  const turn = await connection.command((redis) => redis.set(LEDGER_TURN, "taken", "PX", intervalMs, "NX"));
  if (turn === null) return undefined;
  const redis = createClient(redisUrl, VERIFY_COMMAND_TIMEOUT_MS);
  redis.on("error", () => undefined);
  try {
    await redis.connect();
    return await verifyLedger(redis);
  } finally {
    redis.disconnect();
  }
}
