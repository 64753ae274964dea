import { PassThrough } from "node:stream";
import { expect, test } from "vitest";
import { plain, type Screen, startProgress, table } from "../../../src/commands/terminal.ts";

// As in `script`, in some CI and under `docker run -t`: a terminal whose size nobody has set.
test("a terminal that says it has 0 columns gets whole tables and whole progress", () => {
  const stream = new PassThrough();
  const screen: Screen = Object.assign(stream, { columns: 0, isTTY: true });
  const shown = table(["ID", "STATE"], [["key_1", "ok"]], { gives: ["ID"], drops: ["STATE"], screen });
  expect(plain(shown)).toBe("ID     STATE\nkey_1  ok");
  startProgress({ screen }).show("half of it");
  expect(String(stream.read())).toContain("half of it");
});
