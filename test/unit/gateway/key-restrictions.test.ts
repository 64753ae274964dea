import { expect, test } from "vitest";
import { createAuthenticator } from "../../../src/gateway/authenticate.ts";
import type { RequestContext } from "../../../src/gateway/http-exchange.ts";
import { mayConfirm } from "../../../src/gateway/restricted-keys.ts";

// Guarantee: a stolen key that is tried from elsewhere costs the store no more than unknown keys do.
test("an address that a key is not allowed from has scripts asked only within its limit and budget", () => {
  const authenticator = createAuthenticator({
    lookup: () => Promise.reject(new Error("nothing is looked up")),
    unknownPerMinute: () => 3,
    nowMs: () => 1_700_000_000_000,
    lookUps: { perSecond: 10, perAddressAndSecond: 2 },
  });
  const contextOf = (address: string) =>
    ({
      gateway: { authenticator, clientAddress: () => address },
      exchange: { req: { socket: {} } },
      head: {},
    }) as unknown as RequestContext;
  const attempt = (address: string): boolean => {
    const isAsked = mayConfirm(contextOf(address));
    authenticator.refuseAsUnknown(address);
    return isAsked;
  };
  const tried = Array.from({ length: 20 }, () => attempt("198.51.100.9"));
  expect(tried.filter(Boolean)).toHaveLength(3 + 2);
  expect(tried.slice(5)).not.toContain(true);
  expect(attempt("198.51.100.10")).toBe(true);
});
