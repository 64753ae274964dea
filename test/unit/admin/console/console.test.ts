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
    const imported = [...script.matchAll(/^import .*from "\.\/(.*)\?v=.*";$|await import\("\.\/(.*)\?v=/gm)];
    expect(imported.map(([, first, later]) => first ?? later).sort()).toEqual(PACKAGES);
    // A name that two modules declare is an error of syntax.
    expect(() => new Function(script.replaceAll(/^import .*$/gm, ""))).not.toThrow();
    for (const name of readdirSync(PAGE, { recursive: true, encoding: "utf8" })) {
      if (!name.endsWith(".js")) continue;
      const text = readFileSync(join(PAGE, name), "utf8");
      const [, declared] = /^(?:export )?((?:async )?(?:function|const|let|class) \w+)/m.exec(text) ?? [];
      expect(script.match(new RegExp(`^${declared}\\b`, "gm")), name).toHaveLength(1);
    }
  });

  // Guarantee: a browser that has been here asks for nothing that it has, and never uses a file of another version.
  test("its links name the content that they lead to, which may be kept under that address only", async () => {
    const read = (path: string) => fetch(`${url}/console/${path}`);
    const page = await (await read("")).text();
    const links = (text: string) =>
      Array.from(text.matchAll(/"(?:\.\/)?([a-z]+\.\w+\?v=\w{16})"/g), ([, link]) => link!);
    const script = await (await read(links(page).find((link) => link.startsWith("console.js"))!)).text();
    const all = [...new Set([...links(page), ...links(script)])];
    expect(all.map((link) => link.split("?")[0]).toSorted()).toEqual(
      [...PACKAGES, "console.css", "console.js", "icon.svg"].toSorted(),
    );
    for (const link of all) {
      const kept = await read(link);
      expect(kept.headers.get("cache-control"), link).toMatch(/^private, max-age=\d{8}, immutable$/);
      expect(kept.headers.get("vary")).toBe("Accept-Encoding");
      const other = await read(`${link.slice(0, -16)}0123456789abcdef`);
      expect(other.headers.get("cache-control"), link).toBe("no-store");
      expect(await other.text()).toBe(await kept.text());
    }
  });

  test("it is compressed for those that take that: a first visit loads less than 50 KB before a plot is shown", async () => {
    let bytes = 0;
    for (const path of ["", "console.css", "console.js", "preact.js", "htm.js", "icon.svg"]) {
      const sizes: Record<string, number> = {};
      for (const coding of ["br", "gzip", "identity", "br;q=0"]) {
        const asking = get({
          port: new URL(url).port,
          path: `/console/${path}`,
          headers: { "accept-encoding": coding },
        });
        const [answer] = (await once(asking, "response")) as [IncomingMessage];
        const isCoded = coding === "br" || coding === "gzip";
        expect(answer.headers["content-encoding"], `${path} ${coding}`).toBe(isCoded ? coding : undefined);
        sizes[coding] = (await answer.toArray()).reduce((sum, chunk) => sum + chunk.length, 0);
        expect(answer.headers["content-length"]).toBe(String(sizes[coding]));
      }
      expect(sizes.br).toBeLessThanOrEqual(sizes.gzip!);
      expect(sizes.gzip).toBeLessThan(sizes.identity!);
      bytes += sizes.br!;
    }
    expect(bytes).toBeLessThan(50_000);
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
