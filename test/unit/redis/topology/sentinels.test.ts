import { expect, test } from "vitest";
import { newest } from "../../../../src/redis/topology/sentinels.ts";

const answer = (name: string, epoch: number, replicas = 0) => ({
  primary: { host: name, port: 6379, name, epoch, replicas },
});

// Guarantee: a primary is not left and opened again and again because Sentinels call it by two names.
test("the highest epoch counts; of two names of one epoch, the one in use stays", () => {
  const answers = [answer("a", 1), answer("c", 2), answer("b", 2)];
  expect(newest(answers, undefined)?.name).toBe("b");
  expect(newest(answers, "c")?.name).toBe("c");
  expect(newest(answers, "a")?.name).toBe("b");
  expect(newest([], "a")).toBeUndefined();
});

test("a replica that one Sentinel does not reach counts while another one may promote it", () => {
  const answers = [answer("a", 2, 1), answer("a", 2, 2), answer("b", 1, 3)];
  expect(newest(answers, "a")?.replicas).toBe(2);
});
