import { setTimeout as delay } from "node:timers/promises";

const TRIES_MAX = 4;
const TIMEOUT_MS = 5_000;
const WAITING_MAX = 10_000;
/** A longer timer would fire at once. */
const TIMER_MS_MAX = 2 ** 31 - 1;

export type Callbacks = ReturnType<typeof createCallbacks>;

export function createCallbacks(retryMs: number) {
  const stopped = new AbortController();
  let waiting = 0;

  async function deliver(url: string, waitMs: number, body: string): Promise<void> {
    await delay(Math.min(waitMs, TIMER_MS_MAX), undefined, { signal: stopped.signal });
    for (let attempt = 1; attempt <= TRIES_MAX; attempt++) {
      if (await posted(url, body, stopped.signal)) return;
      await delay(retryMs * 2 ** (attempt - 1), undefined, { signal: stopped.signal });
    }
  }

  return {
    schedule(url: string, waitMs: number, body: string): void {
      if (waiting >= WAITING_MAX || !/^https?:$/.test(URL.parse(url)?.protocol ?? "")) return;
      waiting++;
      deliver(url, waitMs, body)
        .catch(() => {})
        .finally(() => waiting--);
    },
    stop: () => stopped.abort(),
  };
}

async function posted(url: string, body: string, stopped: AbortSignal): Promise<boolean> {
  try {
    const answer = await fetch(url, {
      method: "POST",
      headers: { "content-type": "application/json" },
      body,
      redirect: "manual",
      signal: AbortSignal.any([stopped, AbortSignal.timeout(TIMEOUT_MS)]),
    });
    await answer.body?.cancel();
    return answer.ok;
  } catch {
    return false;
  }
}
