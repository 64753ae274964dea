import { describe, expect, test } from "vitest";
import { confirmedByReplicas } from "../../src/operations/access/operator-session.ts";
import { openNodes } from "../../src/redis/open-nodes.ts";
import { soon } from "../support/soon.ts";
import type { RedisNode } from "./node.ts";
import { startTrio, type Trio } from "./trio.ts";

/** @param strike at the primary, before a busy machine can make another one of it */
async function withTrio(
  strike: (primary: RedisNode, trio: Trio) => Promise<void>,
  work: (trio: Trio, old: RedisNode) => Promise<void>,
): Promise<void> {
  const trio = await startTrio({ quickReturn: true });
  try {
    const struck: RedisNode[] = [];
    await trio.withoutFailover(async () => {
      struck.push(await trio.healthy());
      await strike(struck[0]!, trio);
    });
    await work(trio, struck[0]!);
  } finally {
    await trio.stop();
  }
}

/** Written, and on both replicas. */
async function write(node: RedisNode, name: string): Promise<void> {
  expect(await node.client.set(name, "1")).toBe("OK");
  expect(await node.client.wait(2, 5000)).toBe(2);
}

/** Writes as an operator's command does where one replica is asked for. @returns whether it is confirmed */
async function isConfirmed({ redisUrl }: Trio): Promise<boolean> {
  const { nodes, close } = await openNodes({ redisUrl }, 5000);
  try {
    const { of, confirmed } = confirmedByReplicas(nodes, 1);
    await of(0).set("grant", "1");
    return await confirmed!();
  } finally {
    close();
  }
}

describe.concurrent("one primary, two replicas, three Sentinels", () => {
  test("a replica is promoted and takes writes when the primary is killed, and the old primary returns as a replica", () =>
    withTrio(
      async (primary) => {
        await write(primary, "before");
        await primary.kill();
      },
      async (trio, old) => {
        const next = await trio.promoted(old);
        expect(await next.client.get("before")).toBe("1");
        expect(await next.client.set("after", "1")).toBe("OK");
        await old.start();
        await trio.healthy();
        expect(await old.client.get("after")).toBe("1");
      },
    ));

  test("a replica is promoted when the primary hangs, and what the old one had to itself is gone when it goes on", () =>
    withTrio(
      async (primary) => primary.pause(),
      async (trio, old) => {
        const next = await trio.promoted(old);
        expect(await next.client.set("after", "1")).toBe("OK");
        old.resume();
        await trio.healthy();
        expect(await old.client.get("after")).toBe("1");
      },
    ));

  test("a primary that is cut off is replaced, and refuses writes when its replicas have been silent for two seconds", () =>
    withTrio(
      async (primary, { links }) => links.cut(primary.name),
      async (trio, old) => {
        const next = await trio.promoted(old);
        expect(await next.client.set("after", "1")).toBe("OK");
        await soon(() => expect(old.client.set("alone", "1")).rejects.toThrow("NOREPLICAS"));
        trio.links.heal(old.name);
        const primary = await trio.healthy();
        expect(await primary.client.mget("after", "alone")).toEqual(["1", null]);
        expect(await old.client.mget("after", "alone")).toEqual(["1", null]);
      },
    ));

  // Guarantee: a grant that was acknowledged is not lost, whichever replica the Sentinels promote.
  test("an operator's write is confirmed by each replica that may be promoted, and by the other one once the Sentinels miss one", () =>
    withTrio(
      async (primary, trio) => {
        expect(await isConfirmed(trio)).toBe(true);
        trio.nodes.find((node) => node !== primary)!.pause();
        expect(await isConfirmed(trio)).toBe(false);
      },
      async (trio) => soon(async () => expect(await isConfirmed(trio)).toBe(true)),
    ));

  test("a primary that is back before the failover has lost writes, and its replicas lose them too", () =>
    withTrio(
      async (primary) => {
        for (let at = 0; at < 100; at++) await primary.client.set(`entry-${at}`, "1");
        await write(primary, "last");
        await primary.kill();
        primary.truncate(600);
        await primary.start();
      },
      async (trio) => {
        await trio.healthy();
        for (const { client } of trio.nodes)
          expect(await client.mget("entry-0", "last")).toEqual(["1", null]);
      },
    ));
});
