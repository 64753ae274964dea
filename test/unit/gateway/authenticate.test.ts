import { createHash } from "node:crypto";
import { describe, expect, test, vi } from "vitest";
import { dropOldest } from "../../../src/domain/bounded.ts";
import { createAuthenticator } from "../../../src/gateway/authenticate.ts";

const ADDRESS = "203.0.113.5";
const GOOD = "sk_good";

/** An authenticator with a clock that stands still, over a store that knows some tokens. */
function givenAuthenticator({
  tokens = [GOOD],
  unknownPerMinute = 3,
  lookUps = { perSecond: 0, perAddressAndSecond: 0 },
} = {}) {
  const stored = new Map(tokens.map((token) => [createHash("sha256").update(token).digest("hex"), token]));
  const lookups: string[] = [];
  let nowMs = 1_000_000;
  let broken = false;
  const authenticator = createAuthenticator<string>({
    async lookup(digest) {
      if (broken) throw new Error("the store is away");
      lookups.push(digest);
      return stored.get(digest);
    },
    unknownPerMinute: () => unknownPerMinute,
    nowMs: () => nowMs,
    lookUps,
  });
  const attempt = async (authorization: string | undefined, address = ADDRESS) => {
    const identity = await authenticator.authenticate(authorization, address);
    return identity.outcome === "known" ? identity.key : identity.refusal;
  };
  return {
    attempt,
    evict: (token: string, address = ADDRESS) => authenticator.evictCachedKey(token, address),
    lookups,
    advance: (ms: number) => {
      nowMs += ms;
    },
    breakStore: () => {
      broken = true;
    },
    mendStore: () => {
      broken = false;
    },
  };
}

describe("the header", () => {
  test.each([`Bearer ${GOOD}`, `bearer ${GOOD}`, `BEARER ${GOOD}`, `Bearer  ${GOOD} `])(
    "%j is understood",
    async (header) => {
      expect(await givenAuthenticator().attempt(header)).toBe(GOOD);
    },
  );

  test.each([
    undefined,
    "",
    "Bearer",
    "Bearer ",
    GOOD,
    `Basic ${GOOD}`,
    `Bearer${GOOD}`,
    `Bearer: ${GOOD}`,
    `Bearer ${GOOD} x`,
    `Bearer ${GOOD},Bearer ${GOOD}`,
    `Bearer ${GOOD}, Bearer x`,
    `xBearer ${GOOD}`,
  ])("%j is missing or malformed: 401 Missing API key", async (header) => {
    const auth = givenAuthenticator();
    expect(await auth.attempt(header)).toMatchObject({ status: 401, code: 401, text: "Missing API key" });
    expect(auth.lookups).toEqual([]);
  });

  test.each(["sk_unknown", "good", "SK_good", "sk-good", `sk_${"x".repeat(300)}`])(
    "the token %s is unknown: 401 Invalid API key",
    async (token) => {
      expect(await givenAuthenticator().attempt(`Bearer ${token}`)).toMatchObject({
        status: 401,
        code: 401,
        text: "Invalid API key",
      });
    },
  );

  test("all ways in which a key is not good look the same", async () => {
    const auth = givenAuthenticator({ unknownPerMinute: 100 });
    const answers = [await auth.attempt("Bearer sk_x"), await auth.attempt("Bearer pk_good")];
    expect(new Set(answers.map((answer) => JSON.stringify(answer))).size).toBe(1);
  });

  test("a token that cannot be a key is not looked up: the store sees no junk", async () => {
    const auth = givenAuthenticator();
    await auth.attempt("Bearer good");
    await auth.attempt(`Bearer sk_${"x".repeat(300)}`);
    expect(auth.lookups).toEqual([]);
  });

  test("the store is asked once for a good key, by its SHA-256 and never by the key", async () => {
    const auth = givenAuthenticator();
    await auth.attempt(`Bearer ${GOOD}`);
    await auth.attempt(`Bearer ${GOOD}`);
    expect(auth.lookups).toEqual([createHash("sha256").update(GOOD).digest("hex")]);
  });

  test("a bad key is looked up each time: it may be issued any moment", async () => {
    const auth = givenAuthenticator();
    await auth.attempt("Bearer sk_x");
    await auth.attempt("Bearer sk_x");
    expect(auth.lookups).toHaveLength(2);
  });

  test("a store that is away is a failure, not an unknown key", async () => {
    const auth = givenAuthenticator();
    auth.breakStore();
    await expect(auth.attempt(`Bearer ${GOOD}`)).rejects.toThrow("the store is away");
  });
});

describe("too many unknown keys from one address", () => {
  const tokens = (count: number) => Array.from({ length: count }, (_, n) => `sk_token${n}`);
  const tryUnknown = async (auth: ReturnType<typeof givenAuthenticator>, times: number) => {
    for (let n = 0; n < times; n++)
      expect(await auth.attempt(`Bearer sk_unknown${n}`)).toMatchObject({ status: 401 });
  };

  test("exactly the limit is let through, then 2005 with the seconds to wait", async () => {
    const auth = givenAuthenticator();
    await tryUnknown(auth, 3);
    expect(await auth.attempt("Bearer sk_x")).toMatchObject({
      status: 429,
      code: 2005,
      retryAfterSeconds: 60,
    });
    auth.advance(58_001);
    expect(await auth.attempt("Bearer sk_x")).toMatchObject({
      status: 429,
      code: 2005,
      retryAfterSeconds: 2,
    });
    expect(auth.lookups).toHaveLength(3);
  });

  // Guarantee: the limit holds however many attempts are made at once.
  test("of 50 simultaneous attempts exactly the limit is looked up, the rest are 2005", async () => {
    const auth = givenAuthenticator();
    const answers = await Promise.all(tokens(50).map((token) => auth.attempt(`Bearer ${token}`)));
    expect(auth.lookups).toHaveLength(3);
    expect(answers.slice(0, 3)).toEqual(Array(3).fill(expect.objectContaining({ code: 401 })));
    expect(answers.slice(3)).toEqual(Array(47).fill(expect.objectContaining({ code: 2005 })));
  });

  test("many good keys behind one address are all found at once, also beside unknown ones", async () => {
    const good = tokens(50);
    const auth = givenAuthenticator({ tokens: good });
    const unknown = ["sk_x", "sk_y"].map((token) => auth.attempt(`Bearer ${token}`));
    const found = await Promise.all(good.map((token) => auth.attempt(`Bearer ${token}`)));
    expect(found).toEqual(good);
    expect(await Promise.all(unknown)).toMatchObject([{ code: 401 }, { code: 401 }]);
    expect(await auth.attempt("Bearer sk_z")).toMatchObject({ code: 401 });
    expect(await auth.attempt("Bearer sk_z")).toMatchObject({ code: 2005 });
  });

  test("simultaneous requests with one good key ask the store no oftener than the limit", async () => {
    const auth = givenAuthenticator();
    await Promise.all(tokens(50).map(() => auth.attempt(`Bearer ${GOOD}`)));
    expect(auth.lookups).toHaveLength(3);
  });

  test("a store that is away fails all who wait, and counts against nobody", async () => {
    const auth = givenAuthenticator();
    auth.breakStore();
    const attempts = tokens(50).map((token) => auth.attempt(`Bearer ${token}`));
    const ends = await Promise.allSettled(attempts);
    expect(ends.map(({ status }) => status)).toEqual(Array(50).fill("rejected"));
    auth.mendStore();
    await tryUnknown(auth, 3);
  });

  test("a minute after the first one the count begins anew", async () => {
    const auth = givenAuthenticator();
    await tryUnknown(auth, 3);
    auth.advance(59_999);
    expect(await auth.attempt("Bearer sk_x")).toMatchObject({ code: 2005, retryAfterSeconds: 1 });
    auth.advance(1);
    await tryUnknown(auth, 3);
    expect(await auth.attempt("Bearer sk_x")).toMatchObject({ code: 2005 });
  });

  // Guarantee: the limit is one of a minute, whatever the machine's clock does.
  test("a step of the machine's clock neither prolongs nor ends it", async () => {
    vi.useFakeTimers({ toFake: ["Date"], now: Date.UTC(2026, 0, 1) });
    try {
      const authenticator = createAuthenticator<string>({
        lookup: async () => undefined,
        unknownPerMinute: () => 1,
      });
      await authenticator.authenticate("Bearer sk_x", ADDRESS);
      for (const hours of [-1, 1]) {
        vi.setSystemTime(Date.UTC(2026, 0, 1, hours));
        const identity = await authenticator.authenticate("Bearer sk_x", ADDRESS);
        expect(identity).toMatchObject({ refusal: { code: 2005, retryAfterSeconds: 60 } });
      }
    } finally {
      vi.useRealTimers();
    }
  });

  test("tokens without sk_ count as well, and missing ones do not", async () => {
    const auth = givenAuthenticator();
    for (let n = 0; n < 10; n++) await auth.attempt(undefined);
    for (let n = 0; n < 3; n++) expect(await auth.attempt("Bearer x")).toMatchObject({ status: 401 });
    expect(await auth.attempt("Bearer x")).toMatchObject({ code: 2005 });
    expect(await auth.attempt(undefined)).toMatchObject({ status: 401 });
  });

  test("other addresses are not affected", async () => {
    const auth = givenAuthenticator();
    await tryUnknown(auth, 3);
    expect(await auth.attempt("Bearer sk_x", "203.0.113.6")).toMatchObject({ status: 401 });
  });

  test("keys already known to be good are exempt", async () => {
    const auth = givenAuthenticator({ tokens: [GOOD, "sk_late"] });
    expect(await auth.attempt(`Bearer ${GOOD}`)).toBe(GOOD);
    await tryUnknown(auth, 3);
    expect(await auth.attempt(`Bearer ${GOOD}`)).toBe(GOOD);
    expect(await auth.attempt("Bearer sk_late")).toMatchObject({ code: 2005 });
  });

  test("a key that was evicted is unknown again, and counts", async () => {
    const auth = givenAuthenticator();
    expect(await auth.attempt(`Bearer ${GOOD}`)).toBe(GOOD);
    for (let n = 0; n < 3; n++) auth.evict(GOOD);
    expect(await auth.attempt(`Bearer ${GOOD}`)).toMatchObject({ code: 2005 });
    expect(auth.lookups).toHaveLength(1);
    auth.advance(60_000);
    expect(await auth.attempt(`Bearer ${GOOD}`)).toBe(GOOD);
    expect(auth.lookups).toHaveLength(2);
  });
});

describe("beyond the limit of an address", () => {
  const exhausted = async (lookUps: { perSecond: number; perAddressAndSecond: number }) => {
    const auth = givenAuthenticator({ unknownPerMinute: 1, lookUps });
    for (const address of [ADDRESS, "203.0.113.6"]) await auth.attempt("Bearer sk_x", address);
    auth.lookups.length = 0;
    return auth;
  };

  // Guarantee: nobody who tries unknown keys keeps out a good one that comes from the same address.
  test("a good key that was not seen before is let in, and remembered", async () => {
    const auth = await exhausted({ perSecond: 5, perAddressAndSecond: 5 });
    expect(await auth.attempt("Bearer sk_y")).toMatchObject({ code: 2005 });
    expect(await auth.attempt(`Bearer ${GOOD}`)).toBe(GOOD);
    for (let n = 0; n < 10; n++) expect(await auth.attempt("Bearer sk_y")).toMatchObject({ code: 2005 });
    expect(await auth.attempt(`Bearer ${GOOD}`)).toBe(GOOD);
  });

  test("look-ups are bounded per address and second", async () => {
    const auth = await exhausted({ perSecond: 100, perAddressAndSecond: 2 });
    for (let n = 0; n < 10; n++) await auth.attempt(`Bearer sk_${n}`);
    expect(auth.lookups).toHaveLength(2);
    auth.advance(1000);
    expect(await auth.attempt(`Bearer ${GOOD}`)).toBe(GOOD);
  });

  test("look-ups are bounded per second over all addresses", async () => {
    const auth = await exhausted({ perSecond: 3, perAddressAndSecond: 2 });
    for (let n = 0; n < 10; n++) {
      await auth.attempt(`Bearer sk_${n}`);
      await auth.attempt(`Bearer sk_${n}`, "203.0.113.6");
    }
    expect(auth.lookups).toHaveLength(3);
  });

  // Guarantee: guesses that have used up the budget keep a good key out for milliseconds, not for the rest of the second.
  test("a used-up budget refills steadily: a good key behind a burst of guesses is let in soon", async () => {
    const auth = await exhausted({ perSecond: 1000, perAddressAndSecond: 250 });
    for (let n = 0; n < 300; n++) await auth.attempt(`Bearer sk_${n}`);
    expect(auth.lookups).toHaveLength(250);
    expect(await auth.attempt(`Bearer ${GOOD}`)).toMatchObject({ code: 2005 });
    auth.advance(4);
    expect(await auth.attempt(`Bearer ${GOOD}`)).toBe(GOOD);
  });

  test("what is not used does not add up beyond a second's worth", async () => {
    const auth = await exhausted({ perSecond: 100, perAddressAndSecond: 2 });
    auth.advance(30_000);
    for (let n = 0; n < 10; n++) await auth.attempt(`Bearer sk_${n}`);
    expect(auth.lookups).toHaveLength(2);
  });

  test("an unknown key that was looked up is not told apart from one that was not", async () => {
    const auth = await exhausted({ perSecond: 1, perAddressAndSecond: 1 });
    const answers = [await auth.attempt("Bearer sk_y"), await auth.attempt("Bearer sk_y")];
    expect(auth.lookups).toHaveLength(1);
    expect(answers[0]).toEqual(answers[1]);
  });
});

describe("memory", () => {
  test("a bounded map gives way from its oldest entry, and only when it is full", () => {
    const map = new Map([
      ["a", 1],
      ["b", 2],
    ]);
    dropOldest(map, 3);
    expect([...map.keys()]).toEqual(["a", "b"]);
    dropOldest(map, 2);
    expect([...map.keys()]).toEqual(["b"]);
  });

  test("addresses are forgotten, oldest first, when there are more than 20,000", async () => {
    const auth = givenAuthenticator({ unknownPerMinute: 1 });
    await auth.attempt("Bearer x", "first");
    expect(await auth.attempt("Bearer x", "first")).toMatchObject({ code: 2005 });
    for (let n = 0; n < 20_000; n++) await auth.attempt("Bearer x", `address ${n}`);
    expect(await auth.attempt("Bearer x", "address 19999")).toMatchObject({ code: 2005 });
    expect(await auth.attempt("Bearer x", "first")).toMatchObject({ code: 401 });
  });
});
