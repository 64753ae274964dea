import { expect } from "vitest";
import type { IssuedKey } from "../../src/operations/keys/issue-key.ts";
import { type CallbackUpstream, givenCallbackUpstream, type MadeTask } from "./callback-upstream.ts";
import { givenGateway, type Reply, type TestGateway } from "./gateway.ts";

export const STORYBOARD = "/api/v1/gen2-pro/storyboard";
export const CUSTOMER = "https://customer.example/done?of=1";
export const PUBLIC_URL = "https://gateway.example";
export const SECRET = "a secret of the gateways, long enough";

type Options = NonNullable<Parameters<typeof givenGateway>[0]>;

export type RelayStage = Awaited<ReturnType<typeof givenRelayStage>>;

/** A gateway that relays callbacks, in front of an upstream that calls back when the test says so. Its sweeper sleeps. */
export async function givenRelayStage(options: Options & { upstream?: CallbackUpstream } = {}) {
  const upstream = options.upstream ?? (await givenCallbackUpstream());
  const gateway = await givenRelayGateway(upstream, options);
  return {
    upstream,
    gateway,
    /** The task that the latest generation made. */
    latest(): MadeTask {
      const task = upstream.tasks.at(-1);
      if (!task) throw new Error("the upstream has made no task");
      return task;
    },
    async stop(): Promise<void> {
      await gateway.stop();
      if (!options.upstream) upstream.stop();
    },
  };
}

export const givenRelayGateway = (upstream: CallbackUpstream, options: Options = {}): Promise<TestGateway> =>
  givenGateway({
    ...options,
    upstreamUrl: upstream.url,
    config: {
      ...options.config,
      webhooks: { publicUrl: PUBLIC_URL, secretKey: SECRET, ...options.config?.webhooks },
    },
  });

export const storyboard = (
  gateway: Pick<TestGateway, "request">,
  { key }: IssuedKey,
  more: Record<string, unknown> = { callBackUrl: CUSTOMER },
  headers: Record<string, string> = {},
): Promise<Reply> => {
  const body = { nFrames: "10", shots: [{ Scene: "A lighthouse", duration: 10 }], ...more };
  return gateway.request("POST", STORYBOARD, { key, body, headers });
};

/** The path of the address that the upstream was given. */
export function pathOf({ callBackUrl }: MadeTask): string {
  expect(callBackUrl).toMatch(/^https:\/\/gateway\.example\/callbacks\/[\w.-]+$/);
  return new URL(callBackUrl ?? "").pathname;
}

/** Calls the gateway back as the upstream does. */
export const callBack = (
  gateway: Pick<TestGateway, "request">,
  task: MadeTask,
  body: unknown = { code: 200, msg: "success", data: { task_id: task.taskId, status: task.status } },
): Promise<Reply> => gateway.request("POST", pathOf(task), { body });

/** Samples of `tollgate_callbacks_total` that are not 0, by outcome. */
export async function callbackCounts(gateway: TestGateway): Promise<Record<string, number>> {
  const lines = await gateway.metric("tollgate_callbacks_total{");
  const counts = lines.map((line) => /outcome="(\w+)"\} (\d+)/.exec(line) ?? []);
  return Object.fromEntries(
    counts.map(([, name, count]) => [name, Number(count)] as const).filter(([, count]) => count > 0),
  );
}
