import { readdirSync } from "node:fs";
import { readFile } from "node:fs/promises";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { CAPS, TIER_LIMITS } from "../../domain/limits.ts";

const PAGE = join(import.meta.dirname, "page");
/** uPlot's files lie beside the one that it names as its main. */
const UPLOT = fileURLToPath(new URL(".", import.meta.resolve("uplot")));

/** What the page says of limits, as a module. */
const LIMITS = Object.entries({ TIER_LIMITS, CAPS })
  .map(([list, limits]) => {
    const shown = limits.map(({ name, short, title, used }) => ({ name, short, title, used }));
    return `export const ${list} = ${JSON.stringify(shown)};\n`;
  })
  .join("");

const SCRIPT = "text/javascript; charset=utf-8";
const STYLE = "text/css; charset=utf-8";

/** The only files that are served, by the path below /console/. */
const FILES: Readonly<Record<string, ({ file: string } | { body: string }) & { type: string }>> = {
  "": { file: join(PAGE, "index.html"), type: "text/html; charset=utf-8" },
  "icon.svg": { file: join(PAGE, "icon.svg"), type: "image/svg+xml" },
  "console.css": { file: join(PAGE, "console.css"), type: STYLE },
  "uplot.css": { file: join(UPLOT, "uPlot.min.css"), type: STYLE },
  "limits.js": { body: LIMITS, type: SCRIPT },
  "uplot.js": { file: join(UPLOT, "uPlot.esm.js"), type: SCRIPT },
  ...Object.fromEntries(
    readdirSync(PAGE)
      .filter((name) => name.endsWith(".js"))
      .map((name) => [name, { file: join(PAGE, name), type: SCRIPT }]),
  ),
};

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

/** One of the console's files; undefined for any other path. */
export async function pageFile(path: string): Promise<{ body: Buffer; type: string } | undefined> {
  if (!Object.hasOwn(FILES, path)) return undefined;
  const found = FILES[path]!;
  return { body: "body" in found ? Buffer.from(found.body) : await readFile(found.file), type: found.type };
}
