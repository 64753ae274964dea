/** Never twice at a time. What it throws is logged at most. @param options.pauseMs from the end of a round to the next one */
export function repeated(
  round: (signal: AbortSignal) => Promise<unknown>,
  options: { pauseMs(): number; failed(error: unknown): void },
) {
  const ending = new AbortController();
  const { signal } = ending;
  let timer: NodeJS.Timeout | undefined;
  let current: Promise<void> = Promise.resolve();

  function start(firstMs = options.pauseMs()): void {
    if (signal.aborted) return;
    timer = setTimeout(() => {
      current = round(signal)
        .catch(options.failed)
        .then(() => start());
    }, firstMs).unref();
  }

  return {
    signal,
    start,
    async stop(): Promise<void> {
      ending.abort();
      clearTimeout(timer);
      await current;
    },
  };
}

/** Gateways that lose a server at one moment do not come back to it at one moment. @param share by how much it differs at most */
export const jittered = (delayMs: number, share = 0.25): number =>
  delayMs * (1 - share + 2 * share * Math.random());
