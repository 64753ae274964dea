import { describe, expect, test } from "vitest";
import type { Check } from "../../../src/checks/check.ts";
import { clusterChecks, readClusterNodes } from "../../../src/checks/cluster-checks.ts";
import {
  connectedReplicas,
  guardCheck,
  linkCheck,
  promotableCheck,
} from "../../../src/checks/nodes-checks.ts";
import { judgeSentinels, type PolledSentinel } from "../../../src/checks/sentinels-checks.ts";
import { clocksCheck } from "../../../src/checks/server-checks.ts";
import { readInfo } from "../../../src/redis/server-info.ts";

const found = (checks: readonly Check[]) => checks.map(({ status, message }) => `${status}: ${message}`);
const allSayWhatToDo = (checks: readonly Check[]) =>
  checks.every(({ status, advice }) => status === "ok" || advice !== undefined);

describe("Sentinels", () => {
  const hosts = [1, 2, 3].map((port) => ({ host: "s", port }));
  /** Three that agree, each with the other two. */
  const three = ({ primary = "p:1", quorum = 2, replicas = 2 } = {}): PolledSentinel[] =>
    hosts.map(({ port }) => ({
      server: `s:${port}`,
      answer: {
        primary: { host: "p", port: 1, name: primary, epoch: 1, replicas: 2 },
        others: hosts.filter((other) => other.port !== port),
        quorum,
        replicas,
      },
    }));
  const away = (sentinels: readonly PolledSentinel[], ...ports: number[]): PolledSentinel[] =>
    sentinels.map((one, at) =>
      ports.includes(at + 1) ? { server: one.server, answer: { why: "no answer" } } : one,
    );

  test("that agree are in order", () => {
    expect(found(judgeSentinels("mine", three(), 2))).toEqual([
      "ok: 3 of 3 answer and name p:1; the quorum is 2",
    ]);
  });

  test("are too few for a failover where a majority, or the quorum, does not answer", () => {
    expect(found(judgeSentinels("mine", away(three(), 3)))).toEqual([
      expect.stringContaining("warn: s:3 does not say where the primary is: no answer"),
    ]);
    const one = found(judgeSentinels("mine", away(three(), 2, 3)));
    expect(one).toContain(
      "fail: 1 of 3 answer, and a failover needs 2: nobody replaces a primary that fails",
    );
    const strict = found(judgeSentinels("mine", away(three({ quorum: 3 }), 3)));
    expect(strict).toContain(
      "fail: 2 of 3 answer, and a failover needs 3: nobody replaces a primary that fails",
    );
    expect(found(judgeSentinels("mine", three({ quorum: 4 })))[0]).toMatch(/^fail: the quorum is 4, of 3/);
  });

  test("that name different primaries, or miss replicas, are answer", () => {
    const split = [...three().slice(0, 2), three({ primary: "q:1" })[2]!];
    expect(found(judgeSentinels("mine", split))).toEqual([
      "fail: they name different primaries: p:1 (s:1, s:2), q:1 (s:3)",
    ]);
    expect(found(judgeSentinels("mine", three(), 1))).toEqual([
      "warn: they know 2 replicas, and 1 are connected to the primary",
    ]);
    expect(allSayWhatToDo(judgeSentinels("mine", away(split, 2), 1))).toBe(true);
  });

  test("of which none answers are left to the check of Redis itself", () => {
    expect(judgeSentinels("mine", away(three(), 1, 2, 3))).toEqual([]);
  });
});

describe("a cluster", () => {
  const text = [
    "a 10.0.0.1:6379@16379,redis-1 myself,master - 0 1 1 connected 0-8191 [100->-b]",
    "b 10.0.0.2:6379@16379 master - 0 1 2 connected 8192-16382 16383",
    "c ::1:6379@16379 slave a 0 1 1 connected",
    "d 10.0.0.4:6379@16379 slave b 0 1 2 connected",
  ];
  const checks = (from = "", to = "") =>
    clusterChecks([readClusterNodes(text.join("\n").replace(from, to))], 64);

  test("with all slots and replicas is in order", () => {
    expect(found(checks())).toEqual([
      "ok: 4 nodes; all 16384 slots have a primary, and each primary a replica",
    ]);
    expect(readClusterNodes(text.join("\n")).map(({ server }) => server)).toEqual([
      "redis-1:6379",
      "10.0.0.2:6379",
      "::1:6379",
      "10.0.0.4:6379",
    ]);
  });

  test("with open slots names the partitions that nobody serves", () => {
    const [open] = checks(" 8192-16382 16383", " 8193-16382");
    expect(open).toMatchObject({ status: "fail", message: "2 of 16384 slots have no primary" });
    const lost = checks("b 10.0.0.2:6379@16379 master", "b 10.0.0.2:6379@16379 master,fail");
    expect(lost[0]!.message).toMatch(
      /^8192 of 16384 slots have no primary, among them those of partitions 0?\d/,
    );
    expect(found(lost)[1]).toBe("warn: 10.0.0.2:6379, a primary, is unavailable, as the other nodes say");
    expect(allSayWhatToDo(lost)).toBe(true);
  });

  test("with a primary that nobody follows is answer; a node that one node alone suspects is not away", () => {
    expect(found(checks("slave b 0 1 2", "slave a 0 1 2"))).toEqual([
      "warn: without a replica: 10.0.0.2:6379; nothing takes over if one of them fails",
    ]);
    expect(found(checks("4:6379@16379 slave", "4:6379@16379 slave,fail?"))[0]).toMatch(/^ok/);
    expect(found(checks("4:6379@16379 slave", "4:6379@16379 slave,fail"))).toHaveLength(2);
  });
});

describe("replicas", () => {
  const info = (lines: string) => readInfo(`${lines}\n`);

  test("are those that the primary names", () => {
    const lines = "connected_slaves:1\nslave0:ip=redis-2,port=6380,state=online,offset=1,lag=0";
    expect(connectedReplicas(info(lines))).toEqual([{ host: "redis-2", port: 6380 }]);
  });

  test.each([
    ["role:slave\nmaster_link_status:up", 0, "ok"],
    ["role:slave\nmaster_link_status:up", 100, "ok"],
    ["role:slave\nmaster_link_status:up", 2_000_000, "warn"],
    ["role:slave\nmaster_link_status:down\nmaster_sync_in_progress:1", 0, "warn"],
    ["role:slave\nmaster_link_status:down\nmaster_link_down_since_seconds:7", 0, "fail"],
    ["role:master", 0, "fail"],
  ])("with %j and %i bytes behind: %s", (lines, behind, status) => {
    expect(linkCheck(info(lines), behind).status).toBe(status);
  });

  test("of priority 0 are never promoted", () => {
    const of = (...priorities: number[]) =>
      found(promotableCheck(priorities.map((one) => ({ name: "r", info: info(`slave_priority:${one}`) }))));
    expect(of(100, 50)).toEqual([]);
    expect(of(100, 0)[0]).toMatch(/^warn/);
    expect(of(0, 0)[0]).toMatch(/^fail/);
  });

  test.each<[string, string, boolean, string[]]>([
    ["two, and no limit", "connected_slaves:2", false, ["warn"]],
    ["two, and no limit, in a cluster", "connected_slaves:2", true, []],
    ["one, and no limit", "connected_slaves:1", false, []],
    ["two in time", "connected_slaves:2\nmin_slaves_good_slaves:2", false, []],
    ["none in time", "connected_slaves:2\nmin_slaves_good_slaves:0", false, ["fail"]],
    ["one of one", "connected_slaves:1\nmin_slaves_good_slaves:1", true, ["warn"]],
  ])("that a primary waits for: %s", (_, lines, isCluster, statuses) => {
    expect(guardCheck("p:1", info(lines), isCluster).map(({ status }) => status)).toEqual(statuses);
  });
});

test("clocks of all servers are compared with each other", () => {
  const apart = (...ahead: number[]) => clocksCheck(ahead.map((aheadMs) => ({ name: "r", aheadMs })));
  expect(apart(60_000)).toEqual([]);
  expect(found(apart(60_000, 60_500, 59_900))).toEqual([
    "ok: of 3 servers, the clock of r is 600 ms ahead of that of r",
  ]);
  expect(apart(-600, 600)[0]).toMatchObject({ status: "warn", advice: expect.stringContaining("NTP") });
  expect(apart(0, 6000)[0]).toMatchObject({ status: "fail" });
});
