import { mkdtempSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { expect, test } from "vitest";
import { readConfig } from "../../../src/config/config.ts";

const OWN = `
type Options = { size: string };
export default {
  name: "own",
  options: { type: "object", properties: { size: { type: "string", enum: ["s", "m"], default: "s" } } },
  create: (_generation: unknown, { size }: Options) => ({ method: "POST", path: \`/\${size}\`, json: {} }),
  created: () => ({ outcome: "unclear" }),
  poll: () => ({ method: "GET", path: "/" }),
  polled: () => ({ outcome: "gone" }),
};
`;

const withAuth = (auth: string): string => OWN.replace("poll:", `auth: ${auth}, poll:`);

/** Reads a configuration with one section beside a module. */
function given(upstream: object, module?: string, env: Record<string, string> = {}) {
  const folder = mkdtempSync(join(tmpdir(), "tollgate-adapter-"));
  const file = join(folder, "tollgate.yaml");
  writeFileSync(file, JSON.stringify({ upstream }));
  if (module !== undefined) writeFileSync(join(folder, "own.ts"), module);
  const read = () => readConfig({ env, file });
  return { folder, read, change: (text: string) => writeFileSync(join(folder, "own.ts"), text) };
}

const problemsOf = (upstream: object, module?: string, env?: Record<string, string>) =>
  given(upstream, module, env).read().problems;

test("a module of the operator's is an adapter, with the defaults of its options, and its file is watched", () => {
  const { read, folder } = given({ adapter: "own.ts" }, OWN);
  const { loaded, contents } = read();
  expect(loaded?.config.upstream.dialect).toMatchObject({ name: "own", options: { size: "s" } });
  expect([...contents.keys()]).toContain(join(folder, "own.ts"));
});

test("a changed module is loaded anew, an unchanged one once", () => {
  const { read, change } = given({ adapter: "own.ts", options: { size: "m" } }, OWN);
  const dialect = () => read().loaded!.config.upstream.dialect;
  const first = dialect();
  expect(dialect().adapter()).toBe(first.adapter());
  change(OWN.replace('name: "own"', 'name: "other"'));
  const second = dialect();
  expect(second.adapter().name).toBe("other");
  expect(second.id).not.toBe(first.id);
});

test.each<[string, object, string | undefined, string, string]>([
  ["an unknown name", { adapter: "envelop" }, undefined, "upstream.adapter", "did you mean envelope?"],
  [
    "a name unlike any",
    { adapter: "zzzzzzzz" },
    undefined,
    "upstream.adapter",
    "is no adapter; there are envelope",
  ],
  ["a missing file", { adapter: "own.ts" }, undefined, "upstream.adapter", "there is no such file"],
  ["a file of another kind", { adapter: "own.py/x" }, undefined, "upstream.adapter", "there is no such file"],
  [
    "an unknown option",
    { adapter: "own.ts", options: { sise: "s" } },
    OWN,
    "upstream.options.sise",
    "did you mean size?",
  ],
  [
    "a wrong option",
    { adapter: "own.ts", options: { size: "x" } },
    OWN,
    "upstream.options.size",
    "must be one of s, m",
  ],
  ["an option of an adapter without", { options: { a: 1 } }, undefined, "upstream.options", "must be empty"],
  ["a previous one", { previous_adapter: "nope" }, undefined, "upstream.previous_adapter", "is no adapter"],
  [
    "a header of the gateway's",
    { headers: { Host: "a" } },
    undefined,
    "upstream.headers.Host",
    "sets itself",
  ],
  [
    "a header with a line break",
    { headers: { A: "b\nc" } },
    undefined,
    "upstream.headers.A",
    "visible ASCII",
  ],
  [
    "a credential as header",
    { headers: { "X-Api-Key": "a" } },
    undefined,
    "upstream.headers.X-Api-Key",
    "UPSTREAM_API_KEY",
  ],
  ["a key without its certificate", { tls_key: "k.pem" }, undefined, "upstream.tls_cert", "belong together"],
])("%s is refused with its place", (_name, upstream, module, path, message) => {
  expect(problemsOf(upstream, module)).toContainEqual(
    expect.objectContaining({ path, line: 1, message: expect.stringContaining(message) }),
  );
});

test("two adapters of one name are refused: a task would be polled with the wrong one", () => {
  const upstream = { adapter: "own.ts", previous_adapter: "before.ts" };
  const { folder, read } = given(upstream, OWN);
  writeFileSync(join(folder, "before.ts"), OWN);
  expect(read().problems).toMatchObject([
    { path: "upstream.previous_adapter", line: 1, message: expect.stringContaining("the same name") },
  ]);
  writeFileSync(join(folder, "before.ts"), OWN.replace('"own"', '"before"'));
  expect(read().problems).toEqual([]);
  expect(problemsOf({ adapter: "own.ts", previous_adapter: "own.ts" }, OWN)).toEqual([]);
});

test("an unknown name in the environment is refused with the variable's name", () => {
  expect(problemsOf({}, undefined, { UPSTREAM_ADAPTER: "envelop" })).toEqual([
    {
      file: "environment",
      path: "UPSTREAM_ADAPTER",
      message: expect.stringContaining("did you mean envelope?"),
    },
  ]);
});

test.each([
  ["that is no TypeScript", "const a = 1;\nexport default {{;\n", 2, "cannot be loaded"],
  ["that throws", "const a = undefined as any;\n\nexport default a.b;\n", 3, "cannot be loaded: TypeError"],
  ["without a default export", "export const name = 1;\n", undefined, "no adapter as its default export"],
  ["that lacks a function", OWN.replace("polled:", "pulled:"), undefined, "must have a function polled"],
  ["with a name of Tollgate's", OWN.replace('"own"', '"envelope"'), 4, "must have another name"],
  ["with a name that is none", OWN.replace('"own"', '"My own"'), 4, "must have a name"],
  ["with options that are no schema", OWN.replace('type: "object"', 'type: "text"'), 5, "options must be"],
  ["with a header that cannot be sent", withAuth('{ header: "x y" }'), 8, "auth.header is no name"],
  ["with a header of the gateway's", withAuth('{ header: "host" }'), 8, "auth.header is a header that the"],
  ["with a header that is no text", withAuth("{ header: 5 }"), 8, "auth.header is no text"],
  ["with a scheme that cannot be sent", withAuth('{ scheme: "a\\nb" }'), 8, "auth.scheme must be"],
  [
    "with an upload that nobody reads",
    OWN.replace("poll:", "upload: () => 1, poll:"),
    8,
    "both upload and uploaded",
  ],
])("a module %s refuses the configuration, with file and line", (_name, module, line, message) => {
  expect(problemsOf({ adapter: "own.ts" }, module)).toEqual([
    {
      file: expect.stringMatching(/own\.ts$/),
      path: "",
      message: expect.stringContaining(message),
      ...(line !== undefined && { line }),
    },
  ]);
});
