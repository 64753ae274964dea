import { once } from "node:events";
import { readdirSync, readFileSync } from "node:fs";
import { createServer, get, type IncomingMessage } from "node:http";
import type { AddressInfo } from "node:net";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { createAccess } from "../../../../src/admin/access.ts";
import { createConsole } from "../../../../src/admin/console/console.ts";

const PAGE = join(import.meta.dirname, "../../../../src/admin/console/page");
const TOKEN = "correct-horse-battery";
/** Modules that are served from packages, and import nothing. */
const PACKAGES = ["htm.js", "preact.js", "uplot.js"];
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
  test.each(["", "console.js", "console.css", "icon.svg", "uplot.js", "preact.js", "htm.js"])(
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

  test("the script has every module of the page, and nothing comes from elsewhere", async () => {
    const page = await (await fetch(`${url}/console/`)).text();
    expect(page).not.toMatch(/https?:|<script>|style=| on[a-z]+=/);
    const script = await (await fetch(`${url}/console/console.js`)).text();
    expect(script).not.toMatch(/innerHTML|insertAdjacentHTML|document\.write|eval\(/);
    const imported = [...script.matchAll(/^import .*from "(.*)";$/gm)].map(([, from]) => from);
    expect(imported.sort()).toEqual(PACKAGES.map((name) => `./${name}`));
    // A name that two modules declare is an error of syntax.
    expect(() => new Function(script.replaceAll(/^import .*$/gm, ""))).not.toThrow();
    for (const name of readdirSync(PAGE, { recursive: true, encoding: "utf8" })) {
      if (!name.endsWith(".js")) continue;
      const text = readFileSync(join(PAGE, name), "utf8");
      const [, declared] = /^(?:export )?((?:async )?(?:function|const|let|class) \w+)/m.exec(text) ?? [];
      expect(script.match(new RegExp(`^${declared}\\b`, "gm")), name).toHaveLength(1);
    }
  });

  test("only its own files are served", async () => {
    for (const path of [
      "tsconfig.json",
      "uplot.d.ts",
      "views",
      "../admin.ts",
      "%2e%2e/admin.ts",
      "constructor",
      "main.js",
      "console.js/x",
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
