import { webhookNames } from "../records/names.ts";
import type { Connection } from "../redis/connection.ts";
import { many } from "../redis/pipelines.ts";
import type { Primary } from "../redis/primary.ts";
import { createWriteWatch } from "../redis/write-watch.ts";

/** Deliveries that wait in the store, whichever gateway sends them. Unix ms. */
interface QueueFigures {
  /** When the delivery that is due longest was due; undefined if none waits. */
  firstDueMs: number | undefined;
  waiting: number;
  bytes: number;
  dropped: number;
}

/** Reads the figures of all primaries; an idle store is not read again. Of one that does not answer the latest figures count. */
export function createQueueFigures(connection: Connection) {
  const watch = createWriteWatch();
  const known = new WeakMap<Primary, QueueFigures>();

  const figuresOf = (primary: Primary): Promise<QueueFigures> =>
    primary.command(async (redis) => {
      const { partitions = 0 } = connection.known.facts ?? {};
      const own = Array.from({ length: partitions }, (_, partition) => partition).filter(
        (partition) => connection.of(partition) === primary && !connection.isFrozen(partition),
      );
      const looked = await watch.news(redis, own.join());
      const last = known.get(primary);
      if (!looked && last) return last;
      const lanes = own.flatMap((partition) => [
        webhookNames(partition).first,
        webhookNames(partition).retry,
      ]);
      const firsts = await many<string[], string>(redis, lanes, (pipe, name) =>
        pipe.zrange(name, "0", "0", "WITHSCORES"),
      );
      const totals = await many<(string | null)[], number>(redis, own, (pipe, partition) =>
        pipe.hmget(webhookNames(partition).totals, " waiting", " bytes", " dropped"),
      );
      const sum = (at: number): number => totals.reduce((all, values) => all + Number(values[at] ?? 0), 0);
      const dues = firsts.flatMap(([, score]) => (score === undefined ? [] : [Number(score)]));
      const firstDueMs = dues.length === 0 ? undefined : Math.min(...dues);
      const figures = { firstDueMs, waiting: sum(0), bytes: sum(1), dropped: sum(2) };
      known.set(primary, figures);
      looked?.();
      return figures;
    });

  return async (): Promise<QueueFigures> => {
    const all: QueueFigures[] = [];
    for (const primary of connection.primaries())
      await figuresOf(primary).then(
        (figures) => all.push(figures),
        () => all.push(...[known.get(primary) ?? []].flat()),
      );
    const dues = all.flatMap(({ firstDueMs }) => firstDueMs ?? []);
    const sum = (field: "waiting" | "bytes" | "dropped"): number =>
      all.reduce((total, figures) => total + figures[field], 0);
    const firstDueMs = dues.length === 0 ? undefined : Math.min(...dues);
    return { firstDueMs, waiting: sum("waiting"), bytes: sum("bytes"), dropped: sum("dropped") };
  };
}
