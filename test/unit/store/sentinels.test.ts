import { expect, test } from "vitest";
import { newest } from "../../../src/store/sentinels.ts";

const answer = (name: string, epoch: number) => ({ primary: { host: name, port: 6379, name, epoch } });

// Guarantee: a primary is not left and opened again and again because Sentinels call it by two names.
test("the highest epoch counts; of two names of one epoch, the one in use stays", () => {
  const answers = [answer("a", 1), answer("c", 2), answer("b", 2)];
  expect(newest(answers, undefined)?.name).toBe("b");
  expect(newest(answers, "c")?.name).toBe("c");
  expect(newest(answers, "a")?.name).toBe("b");
  expect(newest([], "a")).toBeUndefined();
});
