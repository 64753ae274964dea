import { once } from "node:events";
import { createServer, get, type IncomingMessage } from "node:http";
import type { AddressInfo } from "node:net";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { createAccess } from "../../../src/operator/access.ts";
import type { Live } from "../../../src/operator/console/answers.ts";
import { createConsole } from "../../../src/operator/console/console.ts";
import { OperatorError } from "../../../src/store/accounts.ts";
import type { OperatorSession } from "../../../src/store/operator-session.ts";
import { createLogger } from "../../../src/telemetry/log.ts";

const TOKEN = "correct-horse-battery";
const lines: string[] = [];
let url: string;

/** The console over a store that refuses everything, behind a log that lets nothing through. */
const session: OperatorSession = {
  archive: {},
  run: () => Promise.reject(new OperatorError("no such thing")),
  write: () => Promise.reject(new OperatorError("no such thing")),
  close: () => undefined,
};
const made = createConsole({
  access: createAccess({ token: TOKEN, host: "127.0.0.1" }),
  session,
  sources: { readings: async () => [], slots: async () => 0 },
  tiers: () => ({ standard: { rateLimit: 1, maxConcurrent: 1, dailyLimit: 1 } }),
  notReady: () => undefined,
  primaries: () => [
    { name: "10.0.0.1:6379", usable: true },
    { name: "10.0.0.2:6379", usable: false },
  ],
  log: createLogger("silent", { write: (line) => void lines.push(line) }),
});
const server = createServer((req, res) => void made.serve(req, res));
beforeAll(async () => {
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  url = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
});
afterAll(() => server.close());

const authorization = `Bearer ${TOKEN}`;
const post = (name: string, body: string, headers: Record<string, string> = {}) =>
  fetch(`${url}/console/api/${name}`, {
    method: "POST",
    headers: { authorization, "content-type": "application/json", ...headers },
    body,
  });

test("which primaries are away is said, also while the gateway is ready", async () => {
  const answer = await fetch(`${url}/console/api/live`, { headers: { authorization } });
  const { gateway } = (await answer.json()) as Live;
  expect(gateway).toMatchObject({
    primaries: [
      { name: "10.0.0.1:6379", usable: true },
      { name: "10.0.0.2:6379", usable: false },
    ],
  });
});

describe("the page", () => {
  test.each(["", "main.js", "console.css", "icon.svg", "uplot.js", "uplot.css"])(
    "/console/%s goes out with no way to run or frame anything else, and is kept by nobody",
    async (path) => {
      const answer = await fetch(`${url}/console/${path}`);
      expect(answer.status).toBe(200);
      const policy = answer.headers.get("content-security-policy")?.split("; ") ?? [];
      expect(policy).toEqual(
        expect.arrayContaining(["default-src 'none'", "script-src 'self'", "frame-ancestors 'none'"]),
      );
      expect(policy.join()).not.toMatch(/unsafe|\*|data:|http/);
      expect(answer.headers.get("cache-control")).toBe("no-store");
      expect(answer.headers.get("x-content-type-options")).toBe("nosniff");
      expect((await answer.text()).length).toBeGreaterThan(100);
    },
  );

  test("every module that it imports is served, and nothing comes from elsewhere", async () => {
    const page = await (await fetch(`${url}/console/`)).text();
    const seen = new Set(["main.js"]);
    for (const name of seen) {
      const source = await (await fetch(`${url}/console/${name}`)).text();
      if (name !== "uplot.js")
        expect(source, name).not.toMatch(/innerHTML|insertAdjacentHTML|document\.write|eval\(/);
      for (const [, next = ""] of source.matchAll(/^import .* from "\.\/(.+)";$/gm)) seen.add(next);
    }
    expect([...seen].sort()).toEqual(
      ["accounts", "api", "dialogs", "dom", "keys", "main", "overview", "plots", "tasks", "uplot"].map(
        (name) => `${name}.js`,
      ),
    );
    expect(page).not.toMatch(/https?:|<script>|style=| on[a-z]+=/);
  });

  test("only its own files are served", async () => {
    for (const path of [
      "tsconfig.json",
      "uplot.d.ts",
      "../admin.ts",
      "%2e%2e/admin.ts",
      "constructor",
      "api.js/x",
    ]) {
      // Not by fetch, which would resolve the dots.
      const asking = get({ port: new URL(url).port, path: `/console/${path}` });
      const [answer] = (await once(asking, "response")) as [IncomingMessage];
      answer.resume();
      expect(answer.statusCode, path).toBe(404);
    }
  });

  test("/console leads to it, by a relative way", async () => {
    const answer = await fetch(`${url}/console`, { redirect: "manual" });
    expect([answer.status, answer.headers.get("location")]).toEqual([308, "console/"]);
  });
});

describe("the API", () => {
  test.each([
    ["GET", "grant", 405, "POST"],
    ["POST", "accounts", 405, "GET"],
    ["DELETE", "account", 405, "GET"],
    ["GET", "nothing", 404, null],
    ["GET", "toString", 404, null],
  ])("%s %s is %d", async (method, name, status, allow) => {
    const answer = await fetch(`${url}/console/api/${name}`, { method, headers: { authorization } });
    expect([answer.status, answer.headers.get("allow")]).toEqual([status, allow]);
    expect(await answer.json()).toEqual({
      error: expect.any(String),
      request_id: answer.headers.get("x-request-id"),
    });
  });

  test.each([
    ["not JSON by its type", "{}", { "content-type": "text/plain" }, 415],
    ["no JSON", "{", {}, 400],
    ["no object", "[]", {}, 400],
    ["more than 4 KiB", JSON.stringify({ id: "x".repeat(5000) }), {}, 413],
    ["no id", "{}", {}, 400],
    ["an id that is no text", '{"id":7}', {}, 400],
  ])("an action whose body is %s is refused", async (_, body, headers, status) => {
    expect((await post("release", body, headers as Record<string, string>)).status).toBe(status);
  });

  test("an action that is refused leaves an audit line whatever the log level, without the token", async () => {
    lines.length = 0;
    const answer = await post("grant", '{"account_id":"acme","amount":5,"reference":"r"}');
    expect(answer.status).toBe(400);
    expect(lines.map((line) => JSON.parse(line))).toEqual([
      expect.objectContaining({
        level: "info",
        audit: true,
        action: "grant",
        target: "acme",
        outcome: "refused",
        why: "no such thing",
        remote_address: "127.0.0.1",
        request_id: answer.headers.get("x-request-id"),
      }),
    ]);
    expect(lines.join()).not.toContain(TOKEN);
  });

  test("so does one with a wrong token; reads leave none, allowed or not", async () => {
    lines.length = 0;
    await fetch(`${url}/console/api/accounts`, { headers: { authorization } });
    await fetch(`${url}/console/api/accounts`, { headers: { authorization: "Bearer wrong" } });
    await post("grant", "{}", { authorization: "Bearer wrong" });
    expect(lines.map((line) => JSON.parse(line))).toEqual([
      expect.objectContaining({ level: "info", audit: true, action: "grant", outcome: "denied" }),
    ]);
  });
});
