import { type Attack, HONEST_ADDRESS, MARK, TEXT_TO_VIDEO } from "../attack.ts";
import { atOnce, Connection, deadlineOf, get, pipeline, post, scaled, Tally } from "../wire.ts";

/** One customer's flood at the store. */
export const oneKey: Attack = {
  name: "one-key",
  title:
    "`deny`: 40,000 generations of one key without credits, 100 connections with 100 of them pipelined on each, in waves",
  durationMs: 12_000,
  async send(target) {
    const tally = new Tally();
    const body = JSON.stringify({ prompt: MARK });
    const request = (): string => post(TEXT_TO_VIDEO, target.poorKey, body);
    const connections = scaled(target, 100);
    await pipeline(tally, target, { connections, depth: 100, total: connections * 400, request });
    tally.check(
      "a key without credits gets no video",
      tally.count(200) === 0,
      `${tally.count(200)} answered 200`,
    );
    return tally;
  },
};

/** One address guesses keys; another customer behind it has a good key that this gateway has not met. */
export const unknownKeys: Attack = {
  name: "unknown-keys",
  title:
    "1,000 unknown keys from the address of the honest customer, then a good key that the gateway has not seen",
  durationMs: 8000,
  async send(target) {
    const tally = new Tally();
    const untilMs = deadlineOf(target);
    const from = HONEST_ADDRESS;
    let guessed = 0;
    await atOnce(10, async () => {
      const connection = await Connection.open(tally, target.url, { from });
      for (; guessed < scaled(target, 1000); ) {
        await connection?.ask(get("/api/v1/credits", `sk_guessed_${target.seed}_${guessed++}`), untilMs);
      }
      connection?.destroy();
    });
    tally.check("no unknown key is taken", tally.count(200) === 0, `${tally.count(200)} answered 200`);
    const connection = await Connection.open(tally, target.url, { from });
    // In its own time, however long the guesses took.
    const status = await connection?.ask(get("/api/v1/credits", target.unseenKey), deadlineOf(target));
    connection?.destroy();
    tally.check("a good key that the gateway has not seen is taken", status === 200, `answered ${status}`);
    return tally;
  },
};
