import { hash } from "node:crypto";
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
  test.each(["", "icon.svg", "more.js", "uplot.js"])(
    "/console/%s goes out with no way to run or frame anything else, and is not used without a question",
    async (path) => {
      const answer = await fetch(`${url}/console/${path}`);
      expect(answer.status).toBe(200);
      const policy = answer.headers.get("content-security-policy")?.split("; ") ?? [];
      expect(policy).toEqual(
        expect.arrayContaining(["default-src 'none'", "img-src 'self'", "frame-ancestors 'none'"]),
      );
      for (const [of, inPage] of [
        ["script-src", 2],
        ["style-src", 1],
      ] as const)
        expect(policy.find((one) => one.startsWith(of))).toMatch(
          new RegExp(`^${of} 'self'( 'sha256-[\\w+/]{43}='){${path === "" ? inPage : 0}}$`),
        );
      expect(policy.join()).not.toMatch(/unsafe|\*|data:|http/);
      expect(answer.headers.get("cache-control")).toBe(path === "" ? "private, no-cache" : "no-store");
      expect(answer.headers.get("x-content-type-options")).toBe("nosniff");
      expect((await answer.text()).length).toBeGreaterThan(100);
    },
  );

  const SCRIPT = /<script>([\s\S]*?)<\/script>/g;
  const DECLARED = /^(?:export )?((?:async )?(?:function|const|let|class) \w+)/gm;
  const STYLE = /<style>([\s\S]*?)<\/style>/g;
  const readPage = async () => (await fetch(`${url}/console/`)).text();

  test("the policy names the page's own scripts and style, and a change of either is not run", async () => {
    const answer = await fetch(`${url}/console/`);
    const policy = answer.headers.get("content-security-policy")!;
    const page = await answer.text();
    for (const [source, element] of [
      ["script-src", SCRIPT],
      ["style-src", STYLE],
    ] as const) {
      const digests = Array.from(page.matchAll(element), ([, own]) => hash("sha256", own!, "base64"));
      const own = digests.map((digest) => ` 'sha256-${digest}'`).join("");
      expect(policy).toContain(`${source} 'self'${own};`);
    }
  });

  test("the scripts have every module of the page, and nothing comes from elsewhere", async () => {
    const page = await readPage();
    const more = await (await fetch(`${url}/console/more.js`)).text();
    const inPage = Array.from(page.matchAll(SCRIPT), ([, script]) => script!);
    const script = [...inPage, more.replace(/^export \{.*\};\n/m, "")].join("");
    expect(page.replace(SCRIPT, "").replace(STYLE, "")).not.toMatch(
      /https?:|<script|<style|style=| on[a-z]+=/,
    );
    expect(script).not.toMatch(/<\/script|<!--/i);
    const packages = /^const (?:htm|\{Component,.*?\})=\(\(\)=>\{.*\n/gm;
    expect(script.match(packages)).toHaveLength(2);
    const own = script.replace(packages, "");
    expect(own).not.toMatch(/innerHTML|insertAdjacentHTML|document\.write|eval\(/);
    const imported = [...script.matchAll(/^import .*$|\bimport\("\.\/(.*)\?v=/gm)];
    expect(imported.map(([, later]) => later)).toEqual(["uplot.js", "more.js"]);
    expect(() => new Function(script)).not.toThrow();
    const names: string[] = [];
    for (const name of readdirSync(PAGE, { recursive: true, encoding: "utf8" })) {
      if (!name.endsWith(".js") || name === "more.js") continue;
      const text = readFileSync(join(PAGE, name), "utf8");
      for (const [, declared = ""] of text.matchAll(DECLARED)) {
        expect(script, name).toContain(`\n${declared}`);
        names.push(declared.split(" ").at(-1)!);
      }
    }
    expect(names.toSorted()).toEqual([...new Set(names)].toSorted());
    expect(names.length).toBeGreaterThan(300);
  });

  // Guarantee: a browser that has been here loads nothing that it has, and never uses a file of another version.
  test("the page is told to be the same, and its links name content that may be kept under that address only", async () => {
    const read = (path: string, headers = {}) => fetch(`${url}/console/${path}`, { headers });
    const { headers } = await read("");
    const etag = headers.get("etag")!;
    const same = await read("", { "if-none-match": etag });
    expect([same.status, await same.text(), same.headers.get("etag")]).toEqual([304, "", etag]);
    expect(same.headers.get("content-security-policy")).toBe(headers.get("content-security-policy"));
    expect((await read("", { "if-none-match": 'W/"0123456789abcdef"' })).status).toBe(200);
    const all = Array.from(
      (await readPage()).matchAll(/"(?:\.\/)?([a-z]+\.\w+\?v=\w{16})"/g),
      ([, link]) => link!,
    );
    const files = new Set(all.map((link) => link.split("?")[0]));
    expect([...files].toSorted()).toEqual(["icon.svg", "more.js", "uplot.js"]);
    for (const link of all) {
      const kept = await read(link);
      expect(kept.headers.get("cache-control"), link).toMatch(/^private, max-age=\d{8}, immutable$/);
      expect(kept.headers.get("vary")).toBe("Accept-Encoding");
      const other = await read(`${link.slice(0, -16)}0123456789abcdef`);
      expect(other.headers.get("cache-control"), link).toBe("no-store");
      // A page that stands open over an upgrade shares its names with the rest of its scripts, which has gone.
      const isRest = link.startsWith("more.js");
      expect(other.status, link).toBe(isRest ? 404 : 200);
      if (!isRest) expect(await other.text()).toBe(await kept.text());
    }
  });

  test("it is compressed for those that take that: a first visit loads less than 42 KB", async () => {
    let bytes = 0;
    for (const path of ["", "icon.svg"]) {
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
    expect(bytes).toBeLessThan(42_000);
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
      "console.js",
      "preact.js",
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
