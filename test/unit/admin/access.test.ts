import type { IncomingMessage } from "node:http";
import { describe, expect, test, vi } from "vitest";
import { createAccess } from "../../../src/admin/access.ts";

const TOKEN = "correct-horse-battery";

function request(headers: Record<string, string> = {}, method = "GET", remoteAddress = "127.0.0.1") {
  return {
    method,
    headers: { host: "127.0.0.1:9090", ...headers },
    socket: { remoteAddress },
  } as IncomingMessage;
}

const bearer = (token: string) => ({ authorization: `Bearer ${token}` });
const statusOf = (entry: ReturnType<ReturnType<typeof createAccess>["check"]>) =>
  entry.outcome === "allowed" ? 200 : entry.status;

describe("with ADMIN_TOKEN", () => {
  const given = () => createAccess({ token: TOKEN, host: "127.0.0.1" });

  test("reading and acting need it, and it opens both", () => {
    const access = given();
    expect(statusOf(access.check(request(), "data"))).toBe(401);
    expect(statusOf(access.check(request(bearer(`${TOKEN}x`)), "data"))).toBe(401);
    expect(statusOf(access.check(request({ authorization: TOKEN }), "data"))).toBe(401);
    expect(statusOf(access.check(request(bearer(TOKEN)), "data"))).toBe(200);
  });

  test("nobody waits longer because the clock was set back", () => {
    vi.useFakeTimers({ toFake: ["Date"], now: 2 * 3_600_000 });
    try {
      const access = given();
      for (let n = 0; n < 10; n++) access.check(request(bearer(`wrong${n}`)), "data");
      vi.setSystemTime(3_600_000);
      const entry = access.check(request(bearer(TOKEN)), "data");
      expect(entry).toMatchObject({ status: 429 });
      expect(Number("headers" in entry && entry.headers["Retry-After"])).toBeLessThanOrEqual(60);
    } finally {
      vi.useRealTimers();
    }
  });

  test("the eleventh wrong one in a minute is 429, the right one too, and only from that address", () => {
    let nowMs = 1_000_000;
    const access = createAccess({ token: TOKEN, host: "127.0.0.1", nowMs: () => nowMs });
    for (let n = 0; n < 10; n++)
      expect(statusOf(access.check(request(bearer(`wrong${n}`)), "data"))).toBe(401);
    nowMs += 20_000;
    expect(access.check(request(bearer(TOKEN)), "data")).toMatchObject({
      status: 429,
      headers: { "Retry-After": "40" },
    });
    expect(statusOf(access.check(request(bearer(TOKEN), "GET", "10.0.0.9"), "data"))).toBe(200);
    nowMs += 40_000;
    expect(statusOf(access.check(request(bearer(TOKEN)), "data"))).toBe(200);
  });

  test("no token, and another site's requests, are no attempts", () => {
    const access = given();
    for (let n = 0; n < 20; n++) {
      access.check(request(), "data");
      access.check(request({ ...bearer("wrong"), "sec-fetch-site": "cross-site" }), "data");
      access.check(request({ ...bearer("wrong"), origin: "http://evil.example" }, "POST"), "data");
    }
    expect(statusOf(access.check(request(bearer(TOKEN)), "data"))).toBe(200);
  });

  test("a name that may have been rebound is refused before the token is looked at", () => {
    const named = createAccess({ token: TOKEN, host: "10.0.0.1", hosts: () => ["Console.example.com"] });
    const status = (host: string) => statusOf(named.check(request({ ...bearer(TOKEN), host }), "data"));
    expect(status("console.example.com:9090")).toBe(200);
    expect(status("tollgate.example.com")).toBe(421);
    expect(status("evil.console.example.com")).toBe(421);
  });

  test("IPv6 addresses of one /64 share their attempts, as do an IPv4 address and its mapped form", () => {
    for (const [tried, right] of [
      ["2001:db8:1:2::", "2001:db8:1:2:ffff::9"],
      ["::ffff:10.0.0.7", "10.0.0.7"],
    ] as const) {
      const access = given();
      for (let n = 0; n < 10; n++) {
        const from = tried.endsWith("::") ? `${tried}${n + 1}` : tried;
        expect(statusOf(access.check(request(bearer(`wrong${n}`), "GET", from), "data"))).toBe(401);
      }
      expect(statusOf(access.check(request(bearer(TOKEN), "GET", right), "data"))).toBe(429);
    }
  });

  test("after 100 wrong ones in a minute from anywhere, only addresses that have shown the right one go on", () => {
    let nowMs = 1_000_000;
    const access = createAccess({ token: TOKEN, host: "127.0.0.1", nowMs: () => nowMs });
    const ask = (token: string, from: string) =>
      statusOf(access.check(request(bearer(token), "GET", from), "data"));
    expect(ask(TOKEN, "10.0.0.1")).toBe(200);
    for (let n = 0; n < 100; n++) expect(ask(`wrong${n}`, `10.1.0.${n}`)).toBe(401);
    expect(ask("wrong", "10.2.0.1")).toBe(429);
    expect(ask(TOKEN, "10.2.0.2")).toBe(429);
    expect(ask(TOKEN, "10.0.0.1")).toBe(200);
    nowMs += 60_000;
    expect(ask(TOKEN, "10.2.0.2")).toBe(200);
  });

  test("the page, which holds no data, asks for no token", () => {
    expect(statusOf(given().check(request(), "page"))).toBe(200);
  });
});

describe("without ADMIN_TOKEN", () => {
  const access = createAccess({ token: undefined, host: "127.0.0.1", hosts: () => ["admin.internal"] });

  test("the port is open on loopback", () => {
    expect(statusOf(access.check(request(), "data"))).toBe(200);
    expect(statusOf(access.check(request({}, "PUT"), "data"))).toBe(200);
  });

  test.each([
    "127.0.0.1:9090",
    "10.1.2.3",
    "[::1]:9090",
    "localhost:9090",
    "a.localhost",
    "admin.internal:9090",
  ])("it answers to %s", (host) => expect(statusOf(access.check(request({ host }), "data"))).toBe(200));

  test.each(["evil.example:9090", "127.0.0.1.evil.example", "localhost.evil.example", "a b", ""])(
    "a name that may have been rebound is refused: %j",
    (host) => expect(statusOf(access.check(request({ host }), "data"))).toBe(421),
  );
});

test.each(["0.0.0.0", "::", "10.0.0.1", "admin.internal"])(
  "bound to %s without ADMIN_TOKEN nothing is served, and the answer says what to do",
  (host) => {
    const access = createAccess({ token: undefined, host });
    for (const wanted of ["page", "data"] as const) {
      expect(access.check(request(), wanted)).toMatchObject({
        status: 403,
        error: expect.stringMatching(/set ADMIN_TOKEN.*or bind admin.host to 127.0.0.1/),
      });
    }
  },
);

test("a link on another site leads to the page, a frame or a script there gets nothing", () => {
  const access = createAccess({ token: undefined, host: "127.0.0.1" });
  const site = { "sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate" };
  expect(statusOf(access.check(request({ ...site, "sec-fetch-dest": "document" }), "page"))).toBe(200);
  expect(statusOf(access.check(request({ ...site, "sec-fetch-dest": "document" }, "POST"), "page"))).toBe(
    403,
  );
  expect(statusOf(access.check(request({ ...site, "sec-fetch-dest": "iframe" }), "page"))).toBe(403);
});

test.each([
  ["cross-site", 403],
  ["same-site", 403],
  ["same-origin", 200],
  ["none", 200],
])("what a browser says of where a read comes from counts: %s is %d", (site, status) => {
  const access = createAccess({ token: undefined, host: "127.0.0.1" });
  expect(statusOf(access.check(request({ "sec-fetch-site": site }), "data"))).toBe(status);
});

test.each([
  ["http://127.0.0.1:9090", 200],
  ["http://127.0.0.1:8080", 403],
  ["http://evil.example", 403],
  ["null", 403],
])("an action from the origin %s is %d", (origin, status) => {
  const access = createAccess({ token: TOKEN, host: "127.0.0.1" });
  expect(statusOf(access.check(request({ ...bearer(TOKEN), origin }, "POST"), "data"))).toBe(status);
});
