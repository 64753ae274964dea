import { partitionOf } from "../../src/records/names.ts";
import type { OpenPrimary } from "../../src/redis/connection.ts";
import type { RedisNodes } from "../../src/redis/store-facts.ts";
import type { PrimaryMap } from "../../src/redis/topology/primary-map.ts";
import { slotOf } from "../failover/slots.ts";
import { randomId } from "./store.ts";
import { givenRedis, type TestRedis } from "./store-stage.ts";

export const PARTITIONS = 64;

export type TwoPrimaries = Awaited<ReturnType<typeof givenTwoPrimaries>>;

/**
 * Two Redis servers that hold a store together: the first has the even partitions, the second the odd ones, and a global name is
 * on the server of its slot. They are no cluster: what is sent to the wrong one is done there, and `misplaced` finds it.
 */
export async function givenTwoPrimaries() {
  const servers: [TestRedis, TestRedis] = [await givenRedis(), await givenRedis()];

  const nodes: RedisNodes = {
    of: (partition) => servers[partition % 2]!.client,
    ofName: (name) => servers[sideOf(name)]!.client,
    all: () => servers.map(({ client }) => client),
  };
  return {
    servers,
    /** For operators' functions. */
    nodes,
    place: (open: OpenPrimary): PrimaryMap => {
      const all = servers.map(({ url }, side) => open({ redisUrl: url }, side === 0 ? "even" : "odd"));
      return {
        all,
        of: (partition) => all[partition % 2]!,
        ofName: (name) => all[sideOf(name)]!,
        partitionOn: (primary) => all.indexOf(primary),
      };
    },
    /** Names that are on the server that does not have them by the map. */
    async misplaced(): Promise<string[]> {
      const names = await Promise.all(servers.map(({ client }) => client.keys("tg:*")));
      // Without a cluster BIND writes the claim of its task id itself, on the server of the request.
      return names.flatMap((some, side) =>
        some.filter((name) => sideOf(name) !== side && !name.startsWith("tg:claim:")),
      );
    },
    async stop(): Promise<void> {
      for (const server of servers) await server.stop();
    },
  };
}

/** An account id whose partition is on this side. */
export function accountOn(side: number): string {
  for (;;) {
    const accountId = randomId("acc");
    if (partitionOf(accountId, PARTITIONS) % 2 === side) return accountId;
  }
}

/** 0: the first server has this name; 1: the second. */
export function sideOf(name: string): number {
  const partition = /\{p(\d+)\}/.exec(name)?.[1];
  return partition === undefined ? slotOf(name) % 2 : Number(partition) % 2;
}
