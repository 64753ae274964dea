import type { Config } from "../config/config.ts";
import { dropOldest } from "../domain/bounded.ts";
import type { UsageAnswer, UsageQuestion } from "../gateway/usage.ts";
import { accountUsage } from "../ledger/account-usage.ts";
import { createOperatorSession } from "../operations/access/operator-session.ts";

const KEPT_MS = 5000;
const KEPT_MAX = 1000;

/** From Redis, on connections of its own, opened by the first question: no read delays a generation. Kept for five seconds. */
export function createCustomerUsage({ store }: Pick<Config, "store">) {
  const session = createOperatorSession({ redisUrl: store.redisUrl, tlsCa: store.tlsCa });
  const answers = new Map<string, { askedMs: number; answer: Promise<UsageAnswer> }>();

  async function read(accountId: string, { from, to, by }: UsageQuestion): Promise<UsageAnswer> {
    const { rows, sinceMs } = await session.run((nodes) =>
      accountUsage(nodes, { accountId, from, to, by: [by] }),
    );
    return { rows, since: sinceMs === undefined ? null : new Date(sinceMs).toISOString() };
  }

  return {
    usageOf(accountId: string, question: UsageQuestion): Promise<UsageAnswer> {
      const name = `${accountId} ${Object.values(question).join(" ")}`;
      const kept = answers.get(name);
      if (kept && performance.now() - kept.askedMs < KEPT_MS) return kept.answer;
      const answer = read(accountId, question);
      answers.delete(name);
      dropOldest(answers, KEPT_MAX);
      answers.set(name, { askedMs: performance.now(), answer });
      answer.catch(() => answers.delete(name));
      return answer;
    },
    close: session.close,
  };
}
