import { once } from "node:events";
import { readdirSync } from "node:fs";
import { createServer, get, type IncomingMessage } from "node:http";
import type { AddressInfo } from "node:net";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { createAccess } from "../../../../src/admin/access.ts";
import { createConsole } from "../../../../src/admin/console/console.ts";

const PAGE = join(import.meta.dirname, "../../../../src/admin/console/page");
const TOKEN = "correct-horse-battery";
let url: string;
const made = createConsole({
  access: createAccess({ token: TOKEN, host: "127.0.0.1" }),
  refusals: { signIn: () => undefined },
});
const server = createServer((req, res) => void made.serve(req, res));
beforeAll(async () => {
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  url = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
});
afterAll(() => server.close());

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
      const answer = await fetch(`${url}/console/${name}`);
      expect(answer.status, name).toBe(200);
      const source = await answer.text();
      if (name !== "uplot.js")
        expect(source, name).not.toMatch(/innerHTML|insertAdjacentHTML|document\.write|eval\(/);
      for (const [, next = ""] of source.matchAll(/^(?:import|\}) .*from "\.\/(.+)";$/gm)) seen.add(next);
    }
    // A module that nothing imports serves nobody. Two are no files of the page.
    const modules = readdirSync(PAGE).filter((name) => name.endsWith(".js"));
    expect([...seen].sort()).toEqual([...modules, "limits.js", "uplot.js"].sort());
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
