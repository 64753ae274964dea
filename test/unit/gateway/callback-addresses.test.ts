import { createHmac, randomBytes } from "node:crypto";
import { expect, test } from "vitest";
import { createCallbackAddresses, createMac } from "../../../src/gateway/callbacks.ts";

const SECRETS = ["a-secret-of-callbacks-for-unit-tests-1", "a-secret-of-callbacks-for-unit-tests-2"] as const;
const target = { partition: 12, requestId: "req_mx1sv8iv52223289000001" };

// Guarantee: tokens of earlier versions and of other programs of the same key stay valid.
test("a token's MAC is HMAC-SHA-256 for keys of every length up to a block", () => {
  for (let bytes = 0; bytes <= 64; bytes++) {
    const key = randomBytes(bytes);
    const text = `${bytes}.${randomBytes(bytes).toString("base64url")}`;
    const wanted = createHmac("sha256", key).update(text).digest("base64url").slice(0, 32);
    expect(createMac(key)(text)).toBe(wanted);
  }
});

test("a token is read with its secret, also as the previous one, and with no other character and no other secret", () => {
  const [present, previous] = SECRETS;
  const token = createCallbackAddresses([previous]).tokenOf(target);
  expect(createCallbackAddresses([present, previous]).read(token)).toEqual(target);
  expect(createCallbackAddresses([present]).read(token)).toBeUndefined();
  for (let at = 0; at < token.length; at++) {
    const other = token[at] === "7" ? "8" : "7";
    const forged = token.slice(0, at) + other + token.slice(at + 1);
    expect(createCallbackAddresses([previous]).read(forged)).toBeUndefined();
  }
});
