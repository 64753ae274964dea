import { once } from "node:events";
import { type IncomingMessage, request } from "node:http";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { givenGateway, type TestGateway } from "../support/gateway.ts";

const TOKEN = "correct-horse-battery";
const OPEN = ["/livez", "/readyz", "/metrics"];
const DATA = ["/config", "/openapi.json", "/log-level", "/manage/v1/whoami", "/no-such-page", "/"];
const PAGE = ["/console", "/console/", "/console/main.js"];

/** Status of one request with exactly these headers: fetch would not send another Host. */
async function ask(
  { adminUrl }: TestGateway,
  path: string,
  headers: Record<string, string> = {},
  method = "GET",
) {
  const sent = request(adminUrl + path, { method, headers, agent: false });
  sent.end(method === "PUT" ? "info" : undefined);
  const [answer] = (await once(sent, "response")) as [IncomingMessage];
  let text = "";
  for await (const chunk of answer.setEncoding("utf8")) text += chunk;
  return { status: answer.statusCode, text };
}

const gateways: TestGateway[] = [];
async function given(admin: { host?: string; hosts?: string[]; token?: string }): Promise<TestGateway> {
  const gateway = await givenGateway({ config: { admin } });
  gateways.push(gateway);
  return gateway;
}
afterAll(() => Promise.all(gateways.map((gateway) => gateway.stop())));

describe("with ADMIN_TOKEN", () => {
  let gateway: TestGateway;
  beforeAll(async () => {
    gateway = await given({ token: TOKEN, hosts: ["console.example.com"] });
  });
  const right = { authorization: `Bearer ${TOKEN}` };

  test.each(OPEN)("%s is for whoever asks, by whatever name", async (path) => {
    expect((await ask(gateway, path, { host: "10-0-0-1.pods.example" })).status).toBe(200);
  });

  test.each(DATA)("%s needs the token", async (path) => {
    expect((await ask(gateway, path)).status).toBe(401);
    expect((await ask(gateway, path, right)).status).not.toBe(401);
  });

  test("setting the log level needs the token", async () => {
    expect((await ask(gateway, "/log-level", {}, "PUT")).status).toBe(401);
    expect((await ask(gateway, "/log-level", right, "PUT")).status).toBe(200);
  });

  // Guarantee: no page on a name that an attacker has rebound to this port, or on another site, reads or changes anything.
  test.each([...DATA, ...PAGE])("%s: other names are 421, other sites 403", async (path) => {
    for (const method of path === "/log-level" ? ["GET", "PUT"] : ["GET", "POST"]) {
      const named = (host: string) => ask(gateway, path, { ...right, host }, method);
      expect((await named("rebound.example:9090")).status).toBe(421);
      expect((await named("console.example.com")).status).not.toBe(421);
      const origin = { ...right, origin: "https://elsewhere.example" };
      expect((await ask(gateway, path, origin, method)).status).toBe(403);
    }
  });
});

// Guarantee: who forgets the token in a container shows nobody his balances.
test("bound beyond loopback without a token, only probes and metrics are served", async () => {
  const gateway = await given({ host: "0.0.0.0" });
  const local = { host: "127.0.0.1" };
  for (const path of OPEN) expect((await ask(gateway, path, local)).status, path).toBe(200);
  for (const path of [...DATA, ...PAGE, "/manage/v1/whoami"]) {
    const { status, text } = await ask(gateway, path, local);
    expect(status, path).toBe(403);
    expect(text, path).toContain("set ADMIN_TOKEN");
  }
  expect((await ask(gateway, "/log-level", local, "PUT")).status).toBe(403);
  expect(gateway.logs.some((line) => line.includes("beyond loopback without ADMIN_TOKEN"))).toBe(true);
});

test("on loopback without a token, reading is open and acting is not", async () => {
  const gateway = await given({});
  for (const path of ["/config", "/openapi.json", "/log-level"]) {
    expect((await ask(gateway, path)).status, path).toBe(200);
    expect((await ask(gateway, path, { host: "rebound.example" })).status, path).toBe(421);
  }
  // The management API needs a token always.
  for (const [path, method] of [
    ["whoami", "GET"],
    ["accounts/acme/grants", "POST"],
  ] as const) {
    expect((await ask(gateway, `/manage/v1/${path}`, {}, method)).status, path).toBe(401);
  }
});
