import fc from "fast-check";
import { expect, test } from "vitest";
import { checkAddress } from "../../../src/webhooks/address-guard.ts";
import { addressProblem } from "../../../src/webhooks/public-address.ts";
import {
  EMBEDDED_FORMS,
  IPV4_FORMS,
  innerHosts,
  METADATA_IPV4,
  METADATA_IPV6,
  METADATA_NAMES,
} from "../../support/inner-addresses.ts";

const PUBLIC_ONLY = { allowNetworks: [], allowPorts: [] };
const HTTPS = { protocol: "https:", port: 443 };
const check = (url: string, policy = PUBLIC_ONLY) => checkAddress(url, policy);

test("no form of an inner address or name passes, a thousand of them", () => {
  const hosts = innerHosts();
  expect(hosts.length).toBeGreaterThan(800);
  expect(hosts.filter((host) => check(`https://${host}/hook`).ok)).toEqual([]);
  expect(hosts.filter((host) => check(`https://${host}:443/hook`).ok)).toEqual([]);
});

/** Any address of an inner network, by its first bytes and the bits that are fixed. */
const innerIpv4 = fc
  .tuple(fc.constantFrom(...innerRanges()), fc.integer({ min: 0, max: 2 ** 32 - 1 }))
  .map(([[base, bits], any]) => {
    const free = 2 ** (32 - bits);
    const value = base - (base % free) + (any % free);
    return [24, 16, 8, 0].map((shift) => Math.floor(value / 2 ** shift) % 256).join(".");
  });

function innerRanges(): [base: number, bits: number][] {
  const cidrs = [
    "0.0.0.0/8",
    "10.0.0.0/8",
    "100.64.0.0/10",
    "127.0.0.0/8",
    "169.254.0.0/16",
    "172.16.0.0/12",
    "192.0.0.0/24",
    "192.168.0.0/16",
    "198.18.0.0/15",
    "224.0.0.0/4",
    "240.0.0.0/4",
  ];
  return cidrs.map((cidr) => {
    const [address = "", bits] = cidr.split("/");
    return [address.split(".").reduce((sum, octet) => sum * 256 + Number(octet), 0), Number(bits)];
  });
}

test("no address of an inner network passes, however it is written", () => {
  const forms = [
    ...Object.values(IPV4_FORMS),
    ...Object.values(EMBEDDED_FORMS).map((form) => (address: string) => `[${form(address)}]`),
  ];
  fc.assert(
    fc.property(innerIpv4, fc.constantFrom(...forms), (address, form) => {
      expect(check(`https://${form(address)}/hook`)).toMatchObject({ ok: false });
    }),
    { numRuns: 3000 },
  );
});

test("no inner address passes as an answer of DNS or as a peer", () => {
  const forms = [(address: string) => address, ...Object.values(EMBEDDED_FORMS)];
  fc.assert(
    fc.property(innerIpv4, fc.constantFrom(...forms), (address, form) => {
      expect(addressProblem(form(address), HTTPS, PUBLIC_ONLY)).toBe("must lead to a public address");
    }),
    { numRuns: 2000 },
  );
});

test.each(["", "127.0.0.1 ", "fe80::1%eth0", "::ffff:8.8.8.8%1", "8.8.8.8.8", "localhost", "undefined"])(
  "%j is no address of a peer",
  (address) => expect(addressProblem(address, HTTPS, PUBLIC_ONLY)).toBe("must lead to a public address"),
);

test.each([
  "8.8.8.8",
  "1.1.1.1",
  "223.255.255.254",
  "2606:4700::1111",
  "2a00:1450:4001:80f::200e",
  "2606:4700::1234:5efe:a00:1",
  "::ffff:8.8.8.8",
  "64:ff9b::808:808",
])("%s is public", (address) => {
  expect(addressProblem(address, HTTPS, PUBLIC_ONLY)).toBeUndefined();
  const host = address.includes(":") ? `[${address}]` : address;
  expect(check(`https://${host}/hook`)).toMatchObject({ ok: true });
});

test.each([
  ["https://example.com/hooks?a=1", "https://example.com/hooks?a=1"],
  ["HTTPS://EXAMPLE.com", "https://example.com/"],
  ["https://example.com:443/a/../b", "https://example.com/b"],
  ["https://bücher.example/ü#part", "https://xn--bcher-kva.example/%C3%BC"],
  ["https://xn--bcher-kva.example/", "https://xn--bcher-kva.example/"],
  ["https://example.com./", "https://example.com./"],
  ["https://134744072/", "https://8.8.8.8/"],
])("%s is called as %s", (text, href) => {
  const checked = check(text);
  expect(checked.ok && checked.url.href).toBe(href);
});

// Nobody looks at what an egress proxy resolves, so allowed networks say nothing of names.
test.each([
  ["https://vault.internal/", "must lead to a public address"],
  ["https://kubernetes/", "must lead to a public address"],
  ["http://example.com/", "must be https"],
  ["https://example.com:8443/", "must have port 443"],
])("with an egress proxy and allowed networks %s %s", (url, reason) => {
  const policy = { ...PUBLIC_ONLY, allowNetworks: ["10.1.0.0/16"] };
  expect(checkAddress(url, policy), "decided once it is resolved").toMatchObject({ ok: true });
  const proxied = { ...policy, proxyUrl: "http://egress.internal:3128" };
  expect(checkAddress(url, proxied)).toEqual({ ok: false, reason });
  expect(checkAddress("http://10.1.2.3:8080/", proxied)).toMatchObject({ ok: true });
});

// Addresses that are kept are checked at each delivery: one that was taken was never called.
test("an address that is too long once it is percent-encoded is refused when it is set, and one that is taken passes again", () => {
  const of = (count: number) => `https://example.com/${"ü".repeat(count)}`;
  expect(check(of(339))).toMatchObject({ ok: false, reason: expect.stringContaining("percent-encoded") });
  const taken = check(of(338));
  expect(taken.ok && check(taken.url.href)).toEqual(taken);
});

test.each([
  ["http://example.com/", "must be https"],
  ["ftp://example.com/", "must be https"],
  ["javascript:alert(1)", "must be https"],
  ["file:///etc/passwd", "must be https"],
  ["https://user@example.com/", "must hold no user or password"],
  ["https://:pass@example.com/", "must hold no user or password"],
  ["https://example.com@127.0.0.1/", "must hold no user or password"],
  ["https://example.com:8443/", "must have port 443"],
  ["https://8.8.8.8:22/", "must have port 443"],
  ["https://example.com:80/", "must have port 443"],
  ["https:\\\\127.0.0.1\\", "must be an https address"],
  ["https://exam ple.com/", "must be an https address"],
  ["https://exa\tmple.com/", "must be an https address"],
  [" https://example.com/", "must be an https address"],
  ["https://example.com/\u0000", "must be an https address"],
  ["https://", "must be an https address"],
  ["https://[::1", "must be an https address"],
  ["//example.com/", "must be an https address"],
  ["", "must be an https address"],
  [`https://example.com/${"a".repeat(2048)}`, "must be an https address"],
])("%j is refused: %s", (text, reason) => {
  expect(check(text)).toEqual({ ok: false, reason: expect.stringContaining(reason) });
});

test("allowed ports are taken, and named where another is refused", () => {
  const policy = { allowNetworks: [], allowPorts: [8443] };
  expect(checkAddress("https://example.com:8443/", policy)).toMatchObject({ ok: true });
  expect(checkAddress("https://8.8.8.8:8443/", policy)).toMatchObject({ ok: true });
  expect(checkAddress("https://example.com:9443/", policy)).toMatchObject({
    reason: "must have port 443 or 8443",
  });
  expect(checkAddress("http://example.com:8443/", policy)).toMatchObject({ reason: "must be https" });
});

test("allowed networks are taken with plain http and any port, and nothing beside them", () => {
  const policy = { allowNetworks: ["127.0.0.0/8", "fd12::/16", "10.1.2.3", "fd34::1"], allowPorts: [] };
  const isTaken = (url: string): boolean => checkAddress(url, policy).ok;
  expect(
    [
      "http://127.0.0.1:8080/",
      "http://[::ffff:127.0.0.1]:1/",
      "http://[fd12::1]/",
      "https://10.1.2.3:444/",
      "http://[fd34::1]/",
      "http://hooks.lan/",
    ].filter((url) => !isTaken(url)),
  ).toEqual([]);
  expect(
    [
      "http://10.1.2.4/",
      "http://[fd13::1]/",
      "http://[fd34::2]/",
      "http://8.8.8.8/",
      "https://8.8.8.8:444/",
      "https://192.168.0.1/",
      "https://[::1]/",
    ].filter(isTaken),
  ).toEqual([]);
});

// It was taken, and then no try found an address for it.
test.each(["localhost", "api.localhost", "localhost."])("%s is refused, whatever is allowed", (name) => {
  const policy = { allowNetworks: ["127.0.0.0/8", "::1"], allowPorts: [] };
  expect(checkAddress(`http://${name}/`, policy)).toMatchObject({ ok: false });
});

test("no setting opens the metadata addresses of a cloud", () => {
  const policy = {
    allowNetworks: [
      "169.254.0.0/16",
      "100.64.0.0/10",
      "192.0.0.0/24",
      "fc00::/7",
      "168.63.129.16",
      "127.0.0.0/8",
    ],
    allowPorts: [80],
  };
  const urls = [
    ...METADATA_IPV4.flatMap((address) => [
      address,
      ...Object.values(IPV4_FORMS).map((form) => form(address)),
    ]),
    ...METADATA_IPV4.flatMap((address) => [`[::ffff:${address}]`, `[64:ff9b::${address}]`]),
    ...METADATA_IPV6.map((address) => `[${address}]`),
    ...METADATA_NAMES.flatMap((name) => [name, `${name}.`, name.toUpperCase(), name.replaceAll(".", "。")]),
  ].map((host) => `http://${host}/latest`);
  expect(urls.filter((url) => checkAddress(url, policy).ok)).toEqual([]);
  for (const address of [...METADATA_IPV4, ...METADATA_IPV6])
    expect(addressProblem(address, { protocol: "http:", port: 80 }, policy)).toBe(
      "must lead to a public address",
    );
});
