import { PassThrough } from "node:stream";
import { WriteStream } from "node:tty";
import { afterEach, describe, expect, test, vi } from "vitest";
import {
  fromNow,
  listing,
  moment,
  paint,
  plain,
  type Screen,
  startProgress,
  table,
  wrapped,
} from "../../../src/commands/terminal.ts";

afterEach(() => vi.unstubAllEnvs());

const COLOR_VARIABLES = [
  "FORCE_COLOR",
  "NO_COLOR",
  "NODE_DISABLE_COLORS",
  "CI",
  "TEAMCITY_VERSION",
  "TF_BUILD",
  "TMUX",
  "COLORTERM",
  "TERM_PROGRAM",
];

/** A terminal of this width, and what was written to it. */
function givenScreen(columns: number, isTTY = true): Screen & { shown(): string } {
  // All that Node looks at: a build server shows fewer colours than a desk.
  for (const name of COLOR_VARIABLES) vi.stubEnv(name, undefined);
  vi.stubEnv("TERM", "xterm-256color");
  const stream = new PassThrough();
  let shown = "";
  stream.on("data", (text) => {
    shown += text;
  });
  return Object.assign(stream, { columns, isTTY, shown: () => shown });
}

describe("colours", () => {
  test("are for terminals", () => {
    expect(paint("red", "x", givenScreen(80))).toBe("\u001b[31mx\u001b[39m");
    expect(paint("red", "x", givenScreen(80, false))).toBe("x");
  });

  test("are not for dumb terminals, nor where NO_COLOR is set", () => {
    const { getColorDepth } = WriteStream.prototype;
    const screen = Object.assign(givenScreen(80), { getColorDepth });
    expect(paint("red", "x", screen)).not.toBe("x");
    vi.stubEnv("NO_COLOR", "1");
    expect(paint("red", "x", screen)).toBe("x");
    vi.stubEnv("NO_COLOR", undefined);
    vi.stubEnv("TERM", "dumb");
    expect(paint("red", "x", screen)).toBe("x");
  });

  test("can be forced", () => {
    const screen = givenScreen(80, false);
    vi.stubEnv("FORCE_COLOR", "1");
    expect(paint("red", "x", screen)).not.toBe("x");
    expect(plain(paint("red", "x", screen))).toBe("x");
  });
});

describe("times", () => {
  test.each([
    [400, "now"],
    [1000, "in 1 s"],
    [-59_000, "59 s ago"],
    [59_900, "in 1 min"],
    [3 * 3_600_000, "in 3 h"],
    [-47 * 3_600_000, "47 h ago"],
    [48 * 3_600_000, "in 2 days"],
    [-59 * 86_400_000, "59 days ago"],
    [90 * 86_400_000, "in 3 months"],
    [-3 * 366 * 86_400_000, "3 years ago"],
  ])("%i ms away is %s", (ms, words) => {
    expect(fromNow(1e12 + ms, 1e12)).toBe(words);
  });

  test("are told from now on a terminal, and as they are elsewhere", () => {
    expect(moment(0, givenScreen(80))).toMatch(/^\d+ years ago$/);
    expect(moment(0, givenScreen(80, false))).toBe("1970-01-01T00:00:00.000Z");
    expect(moment(undefined, givenScreen(80))).toBeUndefined();
    const fields = { created_at: "1970-01-01T00:00:00.000Z", tier: undefined };
    expect(listing(fields, givenScreen(80, false))).toBe("created_at  1970-01-01T00:00:00.000Z");
    expect(plain(listing(fields, givenScreen(80)))).toMatch(/^created_at {2}1970-\S+ \(\d+ years ago\)$/);
  });
});

describe("tables", () => {
  const rows = [
    ["key_1", "a".repeat(40), "ok"],
    ["key_22", "b", undefined],
  ];

  test("have columns as wide as what is in them, whatever colour it has", () => {
    const screen = givenScreen(80);
    const text = table(["ID", "ACCOUNT", "STATE"], [["key_1", { style: "red", text: "acme" }, "ok"]], {
      screen,
    });
    expect(text).toContain(paint("red", "acme", screen));
    expect(plain(text)).toBe("ID     ACCOUNT  STATE\nkey_1  acme     ok");
  });

  // Guarantee: no label, name or reason of others clears, turns or forges what an operator reads.
  test.each([
    ["\u001b[2Jx", "\\u001b[2Jx"],
    ["\u001b[31mx", "\\u001b[31mx"],
    ["\u009b2Jx", "\\u009b2Jx"],
    ["\u202ex", "\\u202ex"],
    ["x\nforged", "x\\u000aforged"],
    ["x\u0085y", "x\\u0085y"],
  ])("and lists show what others wrote escaped: %j", (hostile, escaped) => {
    const screen = givenScreen(80, false);
    expect(table(["A"], [[hostile]], { screen })).toBe(`A\n${escaped}`);
    expect(listing({ a: hostile }, screen)).toBe(`a  ${escaped}`);
  });

  test("cut what may be cut, to fit the terminal, and nothing else", () => {
    const cut = plain(
      table(["ID", "ACCOUNT", "STATE"], rows, { gives: ["ACCOUNT"], screen: givenScreen(30) }),
    );
    expect(cut.split("\n").map((line) => line.length <= 30)).toEqual([true, true, true]);
    expect(cut).toContain(`key_1   ${"a".repeat(14)}…  ok`);
    const narrow = plain(
      table(["ID", "ACCOUNT", "STATE"], rows, { gives: ["ACCOUNT"], screen: givenScreen(5) }),
    );
    expect(narrow).toContain("key_1   aaaaaaa…  ok");
    const whole = table(["ID", "ACCOUNT", "STATE"], rows, {
      gives: ["ACCOUNT"],
      screen: givenScreen(30, false),
    });
    expect(whole).toContain("a".repeat(40));
  });

  test("leave columns out where cutting is not enough, in the order that is said", () => {
    const options = { gives: ["ACCOUNT"], drops: ["STATE", "ACCOUNT"] };
    const at = (columns: number) =>
      plain(table(["ID", "ACCOUNT", "STATE"], rows, { ...options, screen: givenScreen(columns) })).split(
        "\n",
      )[0];
    expect([at(23), at(22), at(16), at(15)]).toEqual([
      "ID      ACCOUNT   STATE",
      "ID      ACCOUNT",
      "ID      ACCOUNT",
      "ID",
    ]);
  });

  test("long texts are broken at blanks", () => {
    expect(wrapped("one two three four five six", 24, 2)).toBe("one two three four\n  five six");
    expect(wrapped("one\ntwo", 80, 2)).toBe("one\n  two");
  });
});

describe("progress", () => {
  test("is one line on a terminal, and gone at the end", () => {
    const screen = givenScreen(10);
    const progress = startProgress({ screen });
    progress.show("0123456789 and more");
    // Too soon after the first to be drawn.
    progress.show("again");
    progress.done();
    expect(screen.shown()).toBe("\r\u001b[2K012345678\r\u001b[2K");
  });

  test("is nothing elsewhere, nor where the work's own output stands on the same screen", () => {
    for (const options of [
      { screen: givenScreen(80, false) },
      { screen: givenScreen(80), output: givenScreen(80) },
    ]) {
      const progress = startProgress(options);
      progress.show("half");
      progress.done();
      expect(options.screen.shown()).toBe("");
    }
    const dumb = givenScreen(80);
    vi.stubEnv("TERM", "dumb");
    startProgress({ screen: dumb }).show("half");
    expect(dumb.shown()).toBe("");
  });
});
