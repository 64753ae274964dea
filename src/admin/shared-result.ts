/**
 * Shares the result of costly work: calls with the same argument while it runs, or shortly after, get the same result.
 * @param keptMs how long a result is answered again
 */
export function shared<Argument, Result>(keptMs: number, work: (argument: Argument) => Promise<Result>) {
  let latest: { argument: Argument; startedMs: number; result: Promise<Result> } | undefined;
  return (argument: Argument): Promise<Result> => {
    if (latest && latest.argument === argument && performance.now() - latest.startedMs < keptMs) {
      return latest.result;
    }
    const result = work(argument);
    const mine = { argument, startedMs: performance.now(), result };
    latest = mine;
    // A failure is not kept.
    result.catch(() => {
      if (latest === mine) latest = undefined;
    });
    return result;
  };
}
