import fc from "fast-check";
import { expect, test } from "vitest";
import { GENERATION_ENDPOINTS, generationEndpoint } from "../../../src/domain/endpoints.ts";
import {
  allowanceOf,
  checkAddresses,
  checkEndpoints,
  readRestrictions,
  restrictionsText,
} from "../../../src/domain/key-restrictions.ts";

// Guarantee: an endpoint is one endpoint however it is spelt, and nothing else becomes one.
test.each(GENERATION_ENDPOINTS)("every spelling of %s is stored as one", (endpoint) => {
  const spellings = [
    endpoint,
    `/${endpoint}`,
    `api/v1/${endpoint}`,
    `/api/v1/${endpoint}`,
    `/api/v1/${endpoint}/`,
    `POST /api/v1/${endpoint}`,
    `https://gateway.example:8443/api/v1/${endpoint}`,
    ` /API/v1/${endpoint.toUpperCase()} `,
    encodeURIComponent(`/api/v1/${endpoint}`),
    `/api/v1/${endpoint.replace("2", "%32")}/`,
  ];
  for (const spelling of spellings) expect(generationEndpoint(spelling), spelling).toBe(endpoint);
  expect(checkEndpoints(spellings)).toEqual({ value: [endpoint] });
});

test.each(["", "upload", "/api/v1/", "gen2", "gen2/text-to-video/x", "GET /api/v1/gen2/text-to-video", "*"])(
  "%j is no endpoint",
  (text) => expect(checkEndpoints([text])).toHaveProperty("problem"),
);

test.each([
  ["10.0.0.0/8", "10.0.0.0/8"],
  ["203.0.113.7", "203.0.113.7/32"],
  ["::ffff:10.0.0.0/104", "10.0.0.0/8"],
  ["::FFFF:203.0.113.7", "203.0.113.7/32"],
  ["2001:0DB8::/32", "2001:db8::/32"],
  ["2001:db8::1", "2001:db8::1/128"],
  ["0.0.0.0/0", "0.0.0.0/0"],
])("the range %s is stored as %s", (given, stored) =>
  expect(checkAddresses([given])).toEqual({ value: [stored] }),
);

test.each([
  ["10.0.0.1/8", /10\.0\.0\.0\/8, or 10\.0\.0\.1\/32/],
  ["010.0.0.1", /no address range/],
  ["10.1", /no address range/],
  ["10.0.0.0/33", /no address range/],
  ["10.0.0.0/", /no address range/],
  ["10.0.0.0/8/8", /no address range/],
  ["fe80::1%eth0", /no address range/],
  ["example.com", /no address range/],
  ["", /no address range/],
])("%j is refused in words", (given, words) =>
  expect(checkAddresses([given])).toEqual({ problem: expect.stringMatching(words) }),
);

test("a list that allows nothing, and one that is too long, are refused", () => {
  expect(checkAddresses([])).toHaveProperty("problem");
  expect(checkEndpoints([])).toHaveProperty("problem");
  expect(checkAddresses(Array.from({ length: 33 }, (_, at) => `10.0.0.${at}`))).toHaveProperty("problem");
});

test("what is stored is read back as it was", () => {
  const some = { endpoints: ["gen2/text-to-video" as const], addresses: ["10.0.0.0/8", "2001:db8::/32"] };
  expect(readRestrictions(restrictionsText(some))).toEqual(some);
  const none = { endpoints: undefined, addresses: undefined };
  expect(restrictionsText(none)).toBeUndefined();
  expect(readRestrictions(undefined)).toEqual(none);
});

// Guarantee: a range allows its addresses in every form, and no others.
test("addresses are compared by their bits, IPv4-mapped ones as IPv4", () => {
  const { address } = allowanceOf("addresses=10.0.0.0/8,2001:db8::/32");
  for (const allowed of ["10.2.3.4", "::ffff:10.2.3.4", "::ffff:a02:304", "2001:db8::5"])
    expect(address(allowed), allowed).toBe(true);
  for (const other of ["11.0.0.1", "::ffff:11.0.0.1", "2001:db9::1", "::a02:304", "", "unknown"])
    expect(address(other), other).toBe(false);
});

test("an IPv4 address is in a range exactly if its first bits are", () => {
  fc.assert(
    fc.property(
      fc.nat(0xffffffff),
      fc.integer({ min: 0, max: 32 }),
      fc.nat(0xffffffff),
      (base, bits, other) => {
        const mask = bits === 0 ? 0 : (0xffffffff << (32 - bits)) >>> 0;
        const dotted = (number: number) => [24, 16, 8, 0].map((shift) => (number >>> shift) & 255).join(".");
        const { address } = allowanceOf(`addresses=${dotted((base & mask) >>> 0)}/${bits}`);
        expect(address(dotted(other))).toBe((other & mask) >>> 0 === (base & mask) >>> 0);
      },
    ),
  );
});

test("other paths than those of generations are always allowed", () => {
  const { route } = allowanceOf("endpoints=gen2/text-to-video");
  expect(route("/api/v1/gen2/text-to-video")).toBe(true);
  expect(route("/api/v1/gen2-pro/text-to-video")).toBe(false);
  for (const path of ["/api/v1/tasks/{taskId}", "/api/v1/credits", "/api/v1/upload"])
    expect(route(path)).toBe(true);
});
