import type { Config } from "../config/config.ts";
import { dropOldest } from "../domain/bounded.ts";
import { GatewayError } from "../domain/errors.ts";
import { FairGate } from "../domain/fair-gate.ts";
import type { UsageAnswer, UsageQuestion } from "../gateway/usage.ts";
import { accountUsage } from "../ledger/account-usage.ts";
import { createOperatorSession } from "../operations/access/operator-session.ts";

const KEPT_MS = 5000;
const KEPT_MAX = 1000;

/** From Redis, on connections of its own, opened by the first question: no read delays a generation. */
export function createCustomerUsage({ store }: Pick<Config, "store">) {
  const session = createOperatorSession({ redisUrl: store.redisUrl, tlsCa: store.tlsCa });

  async function read(accountId: string, { from, to, by }: UsageQuestion): Promise<UsageAnswer> {
    const { rows, sinceMs } = await session.run((nodes) =>
      accountUsage(nodes, { accountId, from, to, by: [by] }),
    );
    return { rows, since: sinceMs === undefined ? null : new Date(sinceMs).toISOString() };
  }

  return { usageOf: inTurn(read), close: session.close };
}

type Read = (accountId: string, question: UsageQuestion) => Promise<UsageAnswer>;

/** Answers are kept for five seconds. A read takes the process 50 ms for an account with many keys, so accounts take turns. */
export function inTurn(read: Read): Read {
  const gate = new FairGate({ inFlightMax: 4, inFlightPerFreeMax: 1, waitingMax: 32 });
  const answers = new Map<string, { requestedMs: number; answer: Promise<UsageAnswer> }>();

  return (accountId, question) => {
    const name = `${accountId} ${Object.values(question).join(" ")}`;
    const now = performance.now();
    for (const [oldest, { requestedMs }] of answers) {
      if (now - requestedMs < KEPT_MS) break;
      answers.delete(oldest);
    }
    const kept = answers.get(name);
    if (kept) return kept.answer;
    const answer = gate.run(accountId, () => read(accountId, question), tooMany);
    dropOldest(answers, KEPT_MAX);
    answers.set(name, { requestedMs: now, answer });
    answer.catch(() => answers.delete(name));
    return answer;
  };
}

const tooMany = (): GatewayError =>
  new GatewayError("slow_down", "too many questions about usage at a time", {
    retryAfterSeconds: 1,
    text: "Too many questions about usage at a time; slow down",
  });
