import { hash } from "node:crypto";
import { existsSync, readdirSync } from "node:fs";
import { readFile } from "node:fs/promises";
import { basename, dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { brotliCompress, gzip } from "node:zlib";
import { dropOldest } from "../../domain/bounded.ts";
import { CAPS, TIER_LIMITS } from "../../domain/limits.ts";
import { WEBHOOK_EVENTS } from "../../domain/webhook-events.ts";

const PAGE = join(import.meta.dirname, "page");
/** A package's files lie beside the one that it names as its main. */
const folderOf = (name: string): string => fileURLToPath(new URL(".", import.meta.resolve(name)));
const UPLOT = folderOf("uplot");

const SCRIPT = "text/javascript; charset=utf-8";
const STYLE = "text/css; charset=utf-8";

const read = (file: string) => (): Promise<string> => readFile(file, "utf8");

/** Pages of the documentation that health leads to. */
const RUNBOOKS = join(import.meta.dirname, "../../../docs/operations");
const MARKDOWN = "text/markdown; charset=utf-8";

/** The only files that are served, by the path below /console/. */
const FILES: Readonly<Record<string, { text: () => Promise<string>; type: string }>> = {
  ...Object.fromEntries(
    (existsSync(RUNBOOKS) ? readdirSync(RUNBOOKS) : []).map((name) => [
      `runbooks/${name}`,
      { text: read(join(RUNBOOKS, name)), type: MARKDOWN },
    ]),
  ),
  "": { text: read(join(PAGE, "index.html")), type: "text/html; charset=utf-8" },
  "icon.svg": { text: read(join(PAGE, "icon.svg")), type: "image/svg+xml" },
  "console.css": { text: style, type: STYLE },
  "console.js": { text: script, type: SCRIPT },
  "uplot.js": { text: read(join(UPLOT, "uPlot.esm.js")), type: SCRIPT },
  "preact.js": { text: read(join(folderOf("preact"), "preact.mjs")), type: SCRIPT },
  "htm.js": { text: read(join(folderOf("htm"), "htm.mjs")), type: SCRIPT },
};

async function style(): Promise<string> {
  return (await read(join(UPLOT, "uPlot.min.css"))()) + (await read(join(PAGE, "console.css"))());
}

/** `limits.js` of the page: what it says of limits. */
function limits(): string {
  const lists = Object.entries({ TIER_LIMITS, CAPS }).map(([list, all]) => {
    const shown = all.map(({ name, unit, short, title, used, refusal }) => ({
      ...{ name, unit, short, title, used, refusal },
    }));
    return `const ${list} = ${JSON.stringify(shown)};\n`;
  });
  return lists.join("");
}

/** Modules of the page that are made from declarations of the gateway. */
const MADE: Readonly<Record<string, () => string>> = {
  "limits.js": limits,
  "webhook-events.js": () => `const WEBHOOK_EVENTS = ${JSON.stringify(WEBHOOK_EVENTS)};\n`,
};

/** Imports and exports between modules of the page, or with a package. */
const LINK = /^(?:import|export) \{[^}]*\}(?: from "(\..+)")?;\n/gm;

/** Comments over declarations and fields, which only readers of the source need. */
const COMMENT = /^ *\/\*\*(?:(?!\*\/)[\s\S])*\*\/\n/gm;

/**
 * All modules of the page as one script, each behind those that it imports: a browser asks once, and not for one after the other. They share
 * a scope, so no two of them declare a name twice. Read for each answer, so that a reload shows a change.
 */
async function script(): Promise<string> {
  const seen = new Set<string>();
  async function from(file: string): Promise<string> {
    if (seen.has(file)) return "";
    seen.add(file);
    const made = MADE[basename(file)];
    if (made) return made();
    const module = await read(file)();
    let before = "";
    for (const [, path] of module.matchAll(LINK))
      if (path !== undefined && !(basename(path) in FILES)) before += await from(join(dirname(file), path));
    const own = module.replace(LINK, (link, path) => (path && basename(path) in FILES ? link : ""));
    return before + own.replace(COMMENT, "").replace(/^export /gm, "");
  }
  return from(join(PAGE, "main.js"));
}

/** The page loads nothing but its own files, is shown in no frame, and its scripts cannot turn text into markup. */
export const pageHeaders = {
  "Content-Security-Policy": [
    "default-src 'none'",
    "script-src 'self'",
    "style-src 'self'",
    "img-src 'self'",
    "connect-src 'self'",
    "base-uri 'none'",
    "form-action 'none'",
    "frame-ancestors 'none'",
    "require-trusted-types-for 'script'",
    "trusted-types 'none'",
  ].join("; "),
  "X-Content-Type-Options": "nosniff",
  "X-Frame-Options": "DENY",
  "Referrer-Policy": "no-referrer",
  "Cross-Origin-Opener-Policy": "same-origin",
  "Cross-Origin-Resource-Policy": "same-origin",
} as const;

/** A link of the page to one of its own files. */
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
/** By coding and content. */
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

/**
 * One of the console's files; undefined for any other path. It is compressed if `Accept-Encoding` takes that, and may be cached for ever
 * under the address that the page has for it.
 *
 * @param version the query of the request, without its question mark
 */
export async function pageFile(
  path: string,
  { version, accepted = "" }: { version?: string | undefined; accepted?: string | undefined } = {},
): Promise<{ body: Buffer; headers: Record<string, string> } | undefined> {
  if (!Object.hasOwn(FILES, path)) return undefined;
  const text = await textOf(path);
  const coding = (["br", "gzip"] as const).find((name) => new RegExp(`\\b${name}\\b(?!;q=0)`).test(accepted));
  const body = coding ? await compressed(coding, text) : Buffer.from(text);
  const isKept = version === `v=${hashOf(text)}`;
  return {
    body,
    headers: {
      "Content-Type": FILES[path]!.type,
      "Content-Length": String(body.length),
      Vary: "Accept-Encoding",
      ...(coding && { "Content-Encoding": coding }),
      ...(isKept && { "Cache-Control": "private, max-age=31536000, immutable" }),
    },
  };
}
