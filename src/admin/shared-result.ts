/**
 * Shares the result of costly work: calls of one owner with the same argument while it runs, or shortly after, get the same result.
 * @param keptMs how long a result is answered again
 */
export function shared<Owner extends object, Argument, Result>(
  keptMs: number,
  work: (owner: Owner, argument: Argument) => Promise<Result>,
) {
  const latest = new WeakMap<Owner, { argument: Argument; startedMs: number; result: Promise<Result> }>();
  return (owner: Owner, argument: Argument): Promise<Result> => {
    const kept = latest.get(owner);
    if (kept && kept.argument === argument && performance.now() - kept.startedMs < keptMs) return kept.result;
    const mine = { argument, startedMs: performance.now(), result: work(owner, argument) };
    latest.set(owner, mine);
    // A failure is not kept.
    mine.result.catch(() => {
      if (latest.get(owner) === mine) latest.delete(owner);
    });
    return mine.result;
  };
}
