import { once } from "node:events";
import { setTimeout as wait } from "node:timers/promises";
import { Worker } from "node:worker_threads";

/** Waiting time of another client of Redis, ms. */
export interface Probe {
  begin(): Promise<unknown>;
  /** The worst since it began. */
  end(): Promise<number>;
  during(work: () => Promise<unknown>): Promise<number>;
  /** The worst while nobody asks for anything, in as long. */
  idle(ms: number): Promise<number>;
  stop(): Promise<unknown>;
}

export async function startProbe(url: string): Promise<Probe> {
  const worker = new Worker(new URL("./ping.ts", import.meta.url), { workerData: url });
  await once(worker, "online");
  const turn = async (isOn: boolean): Promise<number> => {
    const answer = once(worker, "message");
    worker.postMessage(isOn);
    const [ms] = (await answer) as [number];
    return ms;
  };
  const during = async (work: () => Promise<unknown>): Promise<number> => {
    await turn(true);
    await work();
    return turn(false);
  };
  return {
    begin: () => turn(true),
    end: () => turn(false),
    during,
    idle: (ms) => during(() => wait(ms)),
    stop: () => worker.terminate(),
  };
}
