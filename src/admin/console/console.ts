import { hash } from "node:crypto";
import { existsSync, readdirSync } from "node:fs";
import { readFile } from "node:fs/promises";
import type { IncomingMessage, ServerResponse } from "node:http";
import { basename, dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { brotliCompress, gzip } from "node:zlib";
import { dropOldest } from "../../domain/bounded.ts";
import { CAPS, TIER_LIMITS } from "../../domain/limits.ts";
import { WEBHOOK_EVENTS } from "../../domain/webhook-events.ts";
import type { Access } from "../access.ts";
import type { RefusalLog } from "../refusal-log.ts";
import { type Reply, send, text } from "../reply.ts";

const PAGE = join(import.meta.dirname, "page");
const folderOf = (name: string): string => fileURLToPath(new URL(".", import.meta.resolve(name)));
const UPLOT = folderOf("uplot");

const SCRIPT = "text/javascript; charset=utf-8";

const read = (file: string) => (): Promise<string> => readFile(file, "utf8");

/** Pages of the documentation that health leads to. */
const RUNBOOKS = join(import.meta.dirname, "../../../docs/operations");
const MARKDOWN = "text/markdown; charset=utf-8";

const FILES: Readonly<Record<string, { text: () => Promise<string>; type: string }>> = {
  ...Object.fromEntries(
    (existsSync(RUNBOOKS) ? readdirSync(RUNBOOKS) : []).map((name) => [
      `runbooks/${name}`,
      { text: read(join(RUNBOOKS, name)), type: MARKDOWN },
    ]),
  ),
  "": { text: page, type: "text/html; charset=utf-8" },
  "icon.svg": { text: read(join(PAGE, "icon.svg")), type: "image/svg+xml" },
  "more.js": { text: async () => (await scripts()).more, type: SCRIPT },
  "uplot.js": { text: plots, type: SCRIPT },
};

/** Style and scripts in the page itself, so that a browser has all with the first answer. */
async function page(): Promise<string> {
  const [markup, style, { first, rest }] = await Promise.all([
    read(join(PAGE, "index.html"))(),
    styles(),
    scripts(),
  ]);
  return markup
    .replace(STYLE_LINK, () => `<style>${style}</style>`)
    .replace(FIRST_LINK, () => `<script>"use strict";\n${first}</script>`)
    .replace(SCRIPT_LINK, () => `<script>"use strict";\n${rest}</script>`);
}

const STYLE_LINK = '<link rel="stylesheet" href="console.css">';
const FIRST_LINK = '<script src="requests.js"></script>';
const SCRIPT_LINK = '<script src="main.js"></script>';

async function styles(): Promise<string> {
  return (await read(join(UPLOT, "uPlot.min.css"))()) + (await read(join(PAGE, "console.css"))());
}

/** The package's minified file makes a global variable, not a module. */
async function plots(): Promise<string> {
  return `${await read(join(UPLOT, "uPlot.iife.min.js"))()}\nexport default uPlot;\n`;
}

/** A module of a package as a declaration of its names, whose own scope stays its own. */
const LIBRARIES: Readonly<Record<string, () => Promise<string>>> = {
  "preact.js": async () => {
    const text = await read(join(folderOf("preact"), "preact.mjs"))();
    const [link = "", names = ""] = /export\{([^}]*)\};[\s\S]*$/.exec(text) ?? [];
    const members = names.replace(/([\w$]+) as (\w+)/g, "$2:$1");
    return `const {Component,Fragment,createRef,h,render}=(()=>{${text.slice(0, -link.length)}return{${members}}})();\n`;
  },
  "htm.js": async () => {
    const text = await read(join(folderOf("htm"), "htm.mjs"))();
    return `const htm=(()=>{${text.replace("export default ", "return ")}})();\n`;
  },
};

function limits(): string {
  const lists = Object.entries({ TIER_LIMITS, CAPS }).map(([list, all]) => {
    const shown = all.map(({ name, unit, short, title, used, refusal }) => ({
      ...{ name, unit, short, title, used, refusal },
    }));
    return `const ${list} = ${JSON.stringify(shown)};\n`;
  });
  return lists.join("");
}

const MADE: Readonly<Record<string, () => string>> = {
  "limits.js": limits,
  "webhook-events.js": () => `const WEBHOOK_EVENTS = ${JSON.stringify(WEBHOOK_EVENTS)};\n`,
};

/** Imports and exports between modules of the page, or with a package. */
const LINK = /^(?:import|export) (?:\{[^}]*\}|htm)(?: from "(\..+)")?;\n/gm;

/** Comments over declarations and fields, lines of comments, and indentation, which only readers of the source need. */
const FOR_READERS = /^ *\/\*\*(?:(?!\*\/)[\s\S])*\*\/\n|^ *\/\/.*\n|^ +/gm;

interface Scripts {
  first: string;
  rest: string;
  more: string;
}

let together: Promise<Scripts> | undefined;

/** Put together at the first use: the page and the address of its later script need them at each load. */
function scripts(): Promise<Scripts> {
  together ??= putTogether().catch((error: unknown) => {
    together = undefined;
    throw error;
  });
  return together;
}

/**
 * All modules as three scripts, each module behind those that it imports. The first two are in the page: one runs as soon as
 * it has come, and asks the gateway while the rest is on its way. They share the scope of the page, which a module that
 * comes later sees, so no name may occur twice.
 */
async function putTogether(): Promise<Scripts> {
  const seen = new Set<string>();
  async function from(file: string): Promise<string> {
    if (seen.has(file)) return "";
    seen.add(file);
    const made = MADE[basename(file)] ?? LIBRARIES[basename(file)];
    if (made) return made();
    const module = await read(file)();
    let before = "";
    for (const [, path] of module.matchAll(LINK))
      if (path !== undefined) before += await from(join(dirname(file), path));
    return (
      before +
      module
        .replace(LINK, "")
        .replace(FOR_READERS, "")
        .replace(/^export /gm, "")
    );
  }
  const [first, rest] = [await from(join(PAGE, "requests.js")), await from(join(PAGE, "main.js"))];
  const entry = await read(join(PAGE, "more.js"))();
  const names = Array.from(entry.matchAll(/^export \{(.*)\}/gm), ([, list]) => list);
  return { first, rest, more: `${await from(join(PAGE, "more.js"))}export {${names.join()}};\n` };
}

const sourcesOf = (text: string, element: RegExp): string =>
  Array.from(text.matchAll(element), ([, own = ""]) => ` 'sha256-${hash("sha256", own, "base64")}'`).join("");

/** The page loads only its own files, runs only its own script, is in no frame, and its script cannot turn text into markup. */
const policyOf = (text: string): string =>
  [
    "default-src 'none'",
    `script-src 'self'${sourcesOf(text, /<script>([\s\S]*?)<\/script>/g)}`,
    `style-src 'self'${sourcesOf(text, /<style>([\s\S]*?)<\/style>/g)}`,
    "img-src 'self'",
    "connect-src 'self'",
    "base-uri 'none'",
    "form-action 'none'",
    "frame-ancestors 'none'",
    "require-trusted-types-for 'script'",
    "trusted-types 'none'",
  ].join("; ");

const pageHeaders = {
  "Content-Security-Policy": policyOf(""),
  "X-Content-Type-Options": "nosniff",
  "X-Frame-Options": "DENY",
  "Referrer-Policy": "no-referrer",
  "Cross-Origin-Opener-Policy": "same-origin",
  "Cross-Origin-Resource-Policy": "same-origin",
} as const;

const OWN_LINK = /"(\.\/)?([a-z]+\.(?:js|css|svg))"/g;

const hashOf = (text: string): string => hash("sha256", text).slice(0, 16);

/** The text of a file, whose links name the content that they lead to, so that a browser may keep that for ever. */
async function textOf(path: string): Promise<string> {
  const text = await FILES[path]!.text();
  const linked = new Set(Array.from(text.matchAll(OWN_LINK), ([, , name]) => name!));
  const versions = new Map<string, string>();
  for (const name of linked)
    if (name !== path && Object.hasOwn(FILES, name)) versions.set(name, hashOf(await textOf(name)));
  return text.replace(OWN_LINK, (link, folder = "", name) =>
    versions.has(name) ? `"${folder}${name}?v=${versions.get(name)}"` : link,
  );
}

const CODERS = { br: promisify(brotliCompress), gzip: promisify(gzip) } as const;
const CODED_MAX = 32;
const coded = new Map<string, Promise<Buffer>>();

function compressed(coding: keyof typeof CODERS, text: string): Promise<Buffer> {
  const name = `${coding} ${hashOf(text)}`;
  let body = coded.get(name);
  if (!body) {
    body = CODERS[coding](text);
    dropOldest(coded, CODED_MAX);
    coded.set(name, body);
  }
  return body;
}

interface PageRequest {
  version?: string | undefined;
  accepted?: string | undefined;
  known?: string | undefined;
}

/** Undefined for any other path, and for a script of another version of the page. The page is asked for again each time; others are kept for ever under the address that the page has for them. */
export async function pageFile(
  path: string,
  { version, accepted = "", known }: PageRequest = {},
): Promise<Reply | undefined> {
  if (!Object.hasOwn(FILES, path)) return undefined;
  const text = await textOf(path);
  const tag = `W/"${hashOf(text)}"`;
  const isKept = version === `v=${hashOf(text)}`;
  // It shares the names of the page that it came with: that of a gateway before an upgrade may have others.
  if (path === "more.js" && version !== undefined && !isKept) return undefined;
  const ofPage = path === "" && {
    "Content-Security-Policy": policyOf(text),
    "Cache-Control": "private, no-cache",
    ETag: tag,
  };
  if (ofPage && known?.includes(tag)) return { status: 304, headers: { ...ofPage, Vary: "Accept-Encoding" } };
  const coding = (["br", "gzip"] as const).find((name) => new RegExp(`\\b${name}\\b(?!;q=0)`).test(accepted));
  const body = coding ? await compressed(coding, text) : Buffer.from(text);
  return {
    status: 200,
    body,
    headers: {
      ...ofPage,
      "Content-Type": FILES[path]!.type,
      "Content-Length": String(body.length),
      Vary: "Accept-Encoding",
      ...(coding && { "Content-Encoding": coding }),
      ...(isKept && { "Cache-Control": "private, max-age=31536000, immutable" }),
    },
  };
}

const CONSOLE_PATH = "/console";

export type Console = ReturnType<typeof createConsole>;

/** The console's page on the admin port, which holds no data: it is a client of the management API. See docs/console.md. */
export function createConsole({
  access,
  refusals,
}: {
  access: Pick<Access, "check">;
  refusals: Pick<RefusalLog, "signIn">;
}) {
  async function pageOf(req: IncomingMessage): Promise<Reply> {
    const [path = "", version] = (req.url ?? "").split("?");
    const entry = access.check(req, "page");
    if (entry.outcome === "denied") {
      refusals.signIn(entry.reason, req);
      return text(entry.status, entry.error);
    }
    if (req.method !== "GET" && req.method !== "HEAD")
      return { status: 405, headers: { Allow: "GET, HEAD" } };
    // Relative, so that it holds behind a proxy's prefix too.
    if (path === CONSOLE_PATH) return { status: 308, headers: { Location: "console/" } };
    const accepted = req.headers["accept-encoding"]?.toString();
    const known = req.headers["if-none-match"];
    const file = await pageFile(path.slice(CONSOLE_PATH.length + 1), { version, accepted, known });
    return file ?? text(404, "no such page; the console is at /console/");
  }

  return {
    owns: (path: string): boolean => path === CONSOLE_PATH || path.startsWith(`${CONSOLE_PATH}/`),
    async serve(req: IncomingMessage, res: ServerResponse): Promise<void> {
      const page = await pageOf(req);
      send(res, { ...page, headers: { ...pageHeaders, ...page.headers } });
    },
  };
}
