import type { IncomingMessage } from "node:http";
import { describe, expect, test } from "vitest";
import { createAccess } from "../../../src/routes/console/access.ts";

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
    for (const write of [false, true]) {
      expect(statusOf(access.check(request(), write))).toBe(401);
      expect(statusOf(access.check(request(bearer(`${TOKEN}x`)), write))).toBe(401);
      expect(statusOf(access.check(request({ authorization: TOKEN }), write))).toBe(401);
      expect(statusOf(access.check(request(bearer(TOKEN)), write))).toBe(200);
    }
  });

  test("the eleventh wrong one in a minute is 429, the right one too, and only from that address", () => {
    let nowMs = 1_000_000;
    const access = createAccess({ token: TOKEN, host: "127.0.0.1", nowMs: () => nowMs });
    for (let n = 0; n < 10; n++)
      expect(statusOf(access.check(request(bearer(`wrong${n}`)), false))).toBe(401);
    nowMs += 20_000;
    expect(access.check(request(bearer(TOKEN)), false)).toMatchObject({ status: 429, retryAfterSeconds: 40 });
    expect(statusOf(access.check(request(bearer(TOKEN), "GET", "10.0.0.9"), false))).toBe(200);
    nowMs += 40_000;
    expect(statusOf(access.check(request(bearer(TOKEN)), false))).toBe(200);
  });

  test("no token, and another site's requests, are no attempts", () => {
    const access = given();
    for (let n = 0; n < 20; n++) {
      access.check(request(), false);
      access.check(request({ ...bearer("wrong"), "sec-fetch-site": "cross-site" }), false);
      access.check(request({ ...bearer("wrong"), origin: "http://evil.example" }, "POST"), true);
    }
    expect(statusOf(access.check(request(bearer(TOKEN)), true))).toBe(200);
  });

  test("any host name will do: the token is what another site cannot have", () => {
    expect(statusOf(given().check(request({ ...bearer(TOKEN), host: "tollgate.example.com" }), true))).toBe(
      200,
    );
  });
});

describe("without ADMIN_TOKEN", () => {
  const access = createAccess({ token: undefined, host: "admin.internal" });

  test("reading is open, acting says how to open it", () => {
    expect(statusOf(access.check(request(), false))).toBe(200);
    const entry = access.check(request({}, "POST"), true);
    expect(statusOf(entry)).toBe(403);
    expect(entry).toMatchObject({ error: expect.stringContaining("ADMIN_TOKEN") });
    expect(access.writable).toBe(false);
  });

  test.each([
    "127.0.0.1:9090",
    "10.1.2.3",
    "[::1]:9090",
    "localhost:9090",
    "a.localhost",
    "admin.internal:9090",
  ])("it answers to %s", (host) => expect(statusOf(access.check(request({ host }), false))).toBe(200));

  test.each(["evil.example:9090", "127.0.0.1.evil.example", "localhost.evil.example", "a b", ""])(
    "a name that may have been rebound is refused: %j",
    (host) => expect(statusOf(access.check(request({ host }), false))).toBe(403),
  );
});

test.each([
  ["cross-site", 403],
  ["same-site", 403],
  ["same-origin", 200],
  ["none", 200],
])("what a browser says of where a read comes from counts: %s is %d", (site, status) => {
  const access = createAccess({ token: undefined, host: "127.0.0.1" });
  expect(statusOf(access.check(request({ "sec-fetch-site": site }), false))).toBe(status);
});

test.each([
  ["http://127.0.0.1:9090", 200],
  ["http://127.0.0.1:8080", 403],
  ["http://evil.example", 403],
  ["null", 403],
])("an action from the origin %s is %d", (origin, status) => {
  const access = createAccess({ token: TOKEN, host: "127.0.0.1" });
  expect(statusOf(access.check(request({ ...bearer(TOKEN), origin }, "POST"), true))).toBe(status);
});
