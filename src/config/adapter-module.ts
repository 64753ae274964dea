import { hash } from "node:crypto";
import { createRequire, registerHooks } from "node:module";
import path from "node:path";
import { pathToFileURL } from "node:url";
import { dropOldest } from "../domain/bounded.ts";
import { isObject } from "../domain/json.ts";
import type { Adapter } from "../upstream/adapter.ts";
import { BUILT_IN } from "../upstream/adapter-choice.ts";
import { AUTH_SCHEME } from "./sections/upstream.ts";
import { authHeaderRule } from "./setting-rules.ts";

// Adapters of operators. A module is loaded under a name with a digest of its content, so that a changed file is another module, and
// an unchanged one is loaded once.

interface AdapterModule {
  readonly adapter: Adapter;
  readonly answers: unknown;
  /** Its file and a digest of its content. */
  readonly id: string;
}

/** `line` is undefined if it is not known. */
export class ModuleMistake extends Error {
  readonly line: number | undefined;

  constructor(message: string, line?: number) {
    super(message);
    this.line = line;
  }
}

const MODULES_MAX = 16;
const FUNCTIONS = ["create", "created", "poll", "polled"] as const;
const OPTIONAL_FUNCTIONS = ["result", "upload", "uploaded", "callback"] as const;
const NAME = /^[a-z][a-z0-9-]{0,31}$/;

export const isModuleName = (name: string): boolean => /[/\\]|\.[cm]?[jt]s$/.test(name);

const modules = new Map<string, AdapterModule>();
const load = createRequire(import.meta.url);
let loading: { specifier: string; url: string; format: string; source: Buffer } | undefined;
let isHooked = false;

export function loadAdapterModule(file: string, source: Buffer): AdapterModule {
  const id = `${file}#${hash("sha256", source).slice(0, 16)}`;
  const known = modules.get(id);
  if (known) return known;
  const { default: adapter, answers }: Record<string, unknown> = exportsOf(file, source);
  check(adapter, source.toString("utf8"));
  const loaded = { adapter, answers, id };
  dropOldest(modules, MODULES_MAX);
  modules.set(id, loaded);
  return loaded;
}

function exportsOf(file: string, source: Buffer): Record<string, unknown> {
  const { dir, name, ext } = path.parse(file);
  if (!/^\.m?[jt]s$/.test(ext)) throw new ModuleMistake("is no .ts, .js or .mjs file");
  hookOnce();
  const alias = path.join(dir, `${name}.${hash("sha256", source).slice(0, 16)}${ext}`);
  const { href: url } = pathToFileURL(alias);
  const format = ext.endsWith("ts") ? "module-typescript" : "module";
  loading = { specifier: `tollgate-adapter:${url}`, url, format, source };
  try {
    return load(loading.specifier);
  } catch (error) {
    throw new ModuleMistake(`cannot be loaded: ${firstLine(error)}`, lineIn(error, url));
  } finally {
    loading = undefined;
  }
}

/** Node has no other way to load a module anew. */
function hookOnce(): void {
  if (isHooked) return;
  isHooked = true;
  registerHooks({
    resolve: (specifier, context, next) =>
      specifier === loading?.specifier
        ? { url: loading.url, format: loading.format, shortCircuit: true }
        : next(specifier, context),
    load: (url, context, next) =>
      url === loading?.url
        ? { format: loading.format, source: loading.source, shortCircuit: true }
        : next(url, context),
  });
}

function firstLine(error: unknown): string {
  const text =
    error instanceof Error ? `${error.name}: ${error.message}` : "it throws a value that is no error";
  return text.split("\n", 1)[0]!.slice(0, 300);
}

function lineIn(error: unknown, url: string): number | undefined {
  const stack = error instanceof Error ? (error.stack ?? "") : "";
  const at = stack.indexOf(`${url}:`);
  const line = at === -1 ? Number.NaN : Number.parseInt(stack.slice(at + url.length + 1), 10);
  return Number.isNaN(line) ? undefined : line;
}

function check(adapter: unknown, source: string): asserts adapter is Adapter {
  if (!isObject(adapter)) throw new ModuleMistake("has no adapter as its default export");
  const mistake = (member: string, message: string): ModuleMistake =>
    new ModuleMistake(message, member in adapter ? lineOf(source, member) : undefined);
  const { name, options, auth } = adapter;
  if (typeof name !== "string" || !NAME.test(name))
    throw mistake(
      "name",
      "must have a name of a-z, digits and -, at most 32 characters, that begins with a letter",
    );
  if (BUILT_IN.has(name))
    throw mistake("name", `must have another name than ${name}, which Tollgate has itself`);
  for (const member of FUNCTIONS) {
    if (typeof adapter[member] !== "function") throw mistake(member, `must have a function ${member}`);
  }
  for (const member of OPTIONAL_FUNCTIONS) {
    const value = adapter[member];
    if (value !== undefined && typeof value !== "function")
      throw mistake(member, `${member} must be a function`);
  }
  if ((adapter.upload === undefined) !== (adapter.uploaded === undefined))
    throw mistake("upload", "must have both upload and uploaded, or neither");
  if (
    options !== undefined &&
    !(isObject(options) && options.type === "object" && isObject(options.properties))
  )
    throw mistake("options", "options must be a JSON Schema of type object, with its properties");
  const authFault = auth === undefined ? undefined : authProblem(auth);
  if (authFault !== undefined) throw mistake("auth", authFault);
}

/** An upload whose headers cannot be sent would end the process. */
function authProblem(auth: unknown): string | undefined {
  if (!isObject(auth)) return "auth must be an object";
  const { header, scheme } = auth;
  const problem =
    typeof header === "string" ? authHeaderRule(header) : header === undefined ? undefined : "is no text";
  if (problem !== undefined) return `auth.header ${problem}`;
  const isScheme = scheme === undefined || (typeof scheme === "string" && AUTH_SCHEME.test(scheme));
  return isScheme ? undefined : "auth.scheme must be a word such as Bearer or Key, or empty";
}

/** Where a member of an object begins; undefined if it is not there. */
function lineOf(source: string, member: string): number | undefined {
  const begins = new RegExp(`(?:^|[{,])\\s*(?:async\\s+)?${member}\\s*[:(,]`);
  const at = source.split("\n").findIndex((line) => begins.test(line));
  return at === -1 ? undefined : at + 1;
}
