import fc from "fast-check";
import { expect, test } from "vitest";
import { deriveKey } from "../../../src/records/derived-keys.ts";
import { newSecret } from "../../../src/webhooks/delivery-message.ts";
import { openSecretBox, SealedSecretError } from "../../../src/webhooks/sealed-secrets.ts";

const FIRST = "first-key-first-key-first-key-first-key";
const SECOND = "second-key-second-key-second-key-second";
const open = (secretKey: string, previousSecretKey?: string) =>
  openSecretBox({ secretKey, previousSecretKey })!;

test("without a key there is no box", () => {
  expect(openSecretBox({ secretKey: undefined, previousSecretKey: FIRST })).toBeUndefined();
});

test("a secret comes back as it was, and never seals to the same text twice", () => {
  const box = open(FIRST);
  fc.assert(
    fc.property(fc.string({ unit: "binary", maxLength: 200 }), (secret) => {
      const [once, again] = [box.seal(secret), box.seal(secret)];
      expect([box.unseal(once), box.unseal(again)]).toEqual([secret, secret]);
      expect(once).not.toBe(again);
    }),
  );
  const secret = newSecret();
  expect(box.seal(secret)).not.toContain(secret.slice(6, 20));
});

test("a text that was changed anywhere is refused, without repeating it", () => {
  const box = open(FIRST);
  const sealed = box.seal(newSecret());
  for (let at = 0; at < sealed.length; at++) {
    const other = sealed[at] === "A" ? "B" : "A";
    const changed = sealed.slice(0, at) + other + sealed.slice(at + 1);
    // The last digit of base64 may carry bits that do not count.
    if (at === sealed.length - 1) continue;
    expect(() => box.unseal(changed), `character ${at}`).toThrow(SealedSecretError);
  }
  for (const cut of [
    "",
    sealed.slice(0, 20),
    sealed.slice(0, -4),
    `${sealed}AAAA`,
    "whsec_plain",
    "1.aaaaaaaaaaaa.",
  ]) {
    expect(() => box.unseal(cut)).toThrow(SealedSecretError);
  }
  expect(messageOf(() => open(SECOND).unseal(sealed))).toMatch(/^no key at hand opens it: key [0-9a-f]{12}$/);
  for (const plain of [
    "whsec_plain",
    "1.whsec_longer-than-any-name",
    "whsec_longer-than-any-name.key",
    "1.plain text",
  ])
    expect(messageOf(() => box.unseal(plain))).toBe("no key at hand opens it: not a sealed secret");
});

function messageOf(act: () => unknown): string {
  try {
    act();
  } catch (error) {
    return (error as Error).message;
  }
  return "";
}

// Guarantee: the key is replaced while gateways run, some with the old one and some with the new one.
test("with the previous key at hand what it sealed opens, and is told to be sealed again", () => {
  const old = open(FIRST).seal("whsec_a");
  const both = open(SECOND, FIRST);
  expect(both.unseal(old)).toBe("whsec_a");
  expect(both.isCurrent(old)).toBe(false);
  const renewed = both.seal(both.unseal(old));
  expect(both.isCurrent(renewed)).toBe(true);
  expect(open(SECOND).unseal(renewed)).toBe("whsec_a");
  expect(open(FIRST, SECOND).unseal(renewed)).toBe("whsec_a");
  expect(() => open(FIRST).unseal(renewed)).toThrow(SealedSecretError);
});

test("keys of different purposes and different settings have nothing in common", () => {
  const keys = ["a", "b"].flatMap((purpose) =>
    [FIRST, SECOND].map((key) => deriveKey(key, purpose).toString("hex")),
  );
  expect(new Set(keys).size).toBe(4);
  expect(keys[0]).toHaveLength(64);
});
