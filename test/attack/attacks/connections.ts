import { setTimeout as pause } from "node:timers/promises";
import { type Attack, MARK, TEXT_TO_VIDEO } from "../attack.ts";
import { atOnce, Connection, deadlineOf, post, scaled, Tally } from "../wire.ts";

/** Descriptors are few, and connections are free. */
export const idleSockets: Attack = {
  name: "idle-sockets",
  title:
    "600 connections from four addresses that send nothing, each opened anew when it is ended, for 10 s, to a gateway that may open 512 files",
  durationMs: 10_000,
  openFiles: 512,
  async send(target) {
    const tally = new Tally();
    const untilMs = deadlineOf(target);
    await atOnce(scaled(target, 600), async (nth) => {
      while (performance.now() < untilMs) {
        const connection = await Connection.open(tally, target.url, { from: `127.0.0.${2 + (nth % 4)}` });
        // No answer is due: this waits for the end of the connection, or of the attack.
        await connection?.answered(Number.POSITIVE_INFINITY, untilMs);
        connection?.destroy();
        await pause(Math.min(500, Math.max(0, untilMs - performance.now())));
      }
    });
    return tally;
  },
};

const HEADER_LINES = 3000;

/** Heads that a program before or behind the gateway may read otherwise. */
export const oddHeads: Attack = {
  name: "odd-heads",
  title:
    "10 connections at a time send heads with `Transfer_Encoding`, with an empty Host, or with 3,000 lines, of a key with credits, for 6 s",
  durationMs: 6000,
  async send(target) {
    const tally = new Tally();
    const untilMs = deadlineOf(target);
    const sound = post(TEXT_TO_VIDEO, target.paidKey, JSON.stringify({ prompt: MARK }));
    const odd: [string, string, number][] = [
      ["an underscore in a header's name", sound.replace("\r\n", "\r\nTransfer_Encoding: chunked\r\n"), 400],
      ["an empty Host", sound.replace("Host: a", "Host:"), 400],
      ["3,000 header lines", sound.replace("\r\n", `\r\n${"a:\r\n".repeat(HEADER_LINES)}`), 431],
    ];
    const wrong = new Map<string, number[]>();
    await atOnce(10, async (worker) => {
      for (let nth = worker; performance.now() < untilMs; nth++) {
        const [what, bytes, expected] = odd[nth % odd.length]!;
        const connection = await Connection.open(tally, target.url);
        const status = await connection?.ask(bytes, untilMs);
        connection?.destroy();
        // Nothing came: the time was up. 429: the key has had its share of refusals.
        if (status && status !== expected && status !== 429)
          wrong.set(what, [...(wrong.get(what) ?? []), status]);
      }
    });
    for (const [what, , expected] of odd) {
      const others = [...new Set(wrong.get(what))].join(", ");
      tally.check(
        `${what} is refused`,
        others === "",
        others === "" ? `${expected}, or 429` : `answered ${others}`,
      );
    }
    return tally;
  },
};
