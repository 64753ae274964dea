import { expect, test } from "vitest";
import { inCommandWords, OperatorError } from "../../../src/records/operator-error.ts";

test("the command line names the command that mends a mistake; the message alone does not", () => {
  const error = new OperatorError("no key key_1", "not_found", undefined, "`tollgate keys list` shows all");
  expect(error.message).toBe("no key key_1");
  expect(inCommandWords(error)).toBe("no key key_1; `tollgate keys list` shows all");
  expect(inCommandWords(new OperatorError("a mistake"))).toBe("a mistake");
  expect(inCommandWords(new Error("away"))).toBe("away");
  expect(inCommandWords("text")).toBe("text");
});
