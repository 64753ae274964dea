import { execFileSync } from "node:child_process";
import {
  mkdirSync,
  readFileSync,
  renameSync,
  rmSync,
  statSync,
  symlinkSync,
  unlinkSync,
  utimesSync,
  writeFileSync,
} from "node:fs";
import path from "node:path";
import { describe, expect, onTestFinished, test, vi } from "vitest";
import { memoizeByConfigPart, readConfig, redact, requireLoaded } from "../../../src/config/config.ts";
import { type ChangeHooks, LiveConfig } from "../../../src/config/live.ts";
import { ConfigSchema, NEEDS_RESTART } from "../../../src/config/schema.ts";
import { watchFiles } from "../../../src/config/watch.ts";
import { createLogger } from "../../../src/telemetry/log.ts";
import { createMetrics } from "../../../src/telemetry/metrics.ts";
import { soon } from "../../support/soon.ts";
import { configOf, givenFiles } from "./support.ts";

const PRICES = readFileSync(path.resolve("config/prices/reference.yaml"), "utf8");
const text = (rateLimit: number, more = ""): string =>
  `prices: prices.yaml\ntiers:\n  standard: { rate_limit: ${rateLimit}, max_concurrent: 3, daily_limit: 500 }\n${more}`;
const priced = (credits: number): string =>
  PRICES.replace("gen2/text-to-video: 10", `gen2/text-to-video: ${credits}`);

/** A live configuration over a file, with its log and its metrics. */
function givenLive(file: string, env: Record<string, string> = {}) {
  const lines: Record<string, unknown>[] = [];
  const log = createLogger("debug", { write: (line) => void lines.push(JSON.parse(line)) });
  const metrics = createMetrics();
  const loaded = requireLoaded(readConfig({ env, file }));
  const live = new LiveConfig({ loaded, log, metrics, lookEveryMs: 5 });
  onTestFinished(live.stop);
  return {
    live,
    lines,
    rateLimit: () => live.config().tiers.standard?.rate_limit,
    credits: () => live.config().priceLists[0]!.table["gen2/text-to-video"],
    async metric(name: string): Promise<string | undefined> {
      const page = await metrics.registry.metrics();
      return page.split("\n").find((line) => line.startsWith(name));
    },
  };
}

function givenFolder(): { folder: string; file: string } {
  const file = givenFiles({ "tollgate.yaml": text(5), "prices.yaml": priced(10) });
  return { folder: path.dirname(file), file };
}

/** A Kubernetes volume: each file is a link through `..data`, which is swapped as a whole. */
function givenVolume() {
  const folder = path.dirname(givenFiles({ "some.txt": "" }));
  const put = (version: string, rateLimit: number, credits: number): void => {
    mkdirSync(path.join(folder, version));
    writeFileSync(path.join(folder, version, "tollgate.yaml"), text(rateLimit));
    writeFileSync(path.join(folder, version, "prices.yaml"), priced(credits));
    symlinkSync(version, path.join(folder, "..data_tmp"));
    renameSync(path.join(folder, "..data_tmp"), path.join(folder, "..data"));
  };
  put("..1", 5, 10);
  for (const name of ["tollgate.yaml", "prices.yaml"]) {
    symlinkSync(`..data/${name}`, path.join(folder, name));
  }
  return { file: path.join(folder, "tollgate.yaml"), put, folder };
}

describe("a change of the files takes effect", () => {
  test("written in place", async () => {
    const { folder, file } = givenFolder();
    const { live, rateLimit, credits } = givenLive(file);
    live.watch();
    const before = live.config();
    writeFileSync(file, text(6));
    writeFileSync(path.join(folder, "prices.yaml"), priced(11));
    await soon(() => expect([rateLimit(), credits()]).toEqual([6, 11]));
    // Whoever holds the old snapshot goes on with it.
    expect([before.tiers.standard?.rate_limit, before.priceLists[0]!.table["gen2/text-to-video"]]).toEqual([
      5, 10,
    ]);
  });

  test("after a pipe stood in the file's place: it is refused, and never waited for", async () => {
    const { file } = givenFolder();
    const { live, rateLimit, lines } = givenLive(file);
    live.watch();
    unlinkSync(file);
    execFileSync("mkfifo", [file]);
    await soon(() => expect(lines.some(({ msg }) => String(msg).includes("no regular file"))).toBe(true));
    expect(live.reload("SIGHUP")).toBe("refused");
    unlinkSync(file);
    writeFileSync(file, text(6));
    await soon(() => expect(rateLimit()).toBe(6));
  });

  test("renamed over the old ones, after a moment without any", async () => {
    const { folder, file } = givenFolder();
    const { live, rateLimit, lines } = givenLive(file);
    live.watch();
    unlinkSync(file);
    await soon(() => expect(lines.at(-1)?.msg).toContain("refused"));
    expect(lines.at(-2)?.msg).toContain("tollgate.yaml: cannot be read: there is no such file");
    writeFileSync(path.join(folder, "new"), text(6));
    renameSync(path.join(folder, "new"), file);
    await soon(() => expect(rateLimit()).toBe(6));
  });

  test("once, when swapped with their folder, as Kubernetes does", async () => {
    const { file, put, folder } = givenVolume();
    const { live, lines, rateLimit, credits } = givenLive(file);
    live.watch();
    for (const version of [2, 3]) {
      put(`..${version}`, 5 + version, 10 + version);
      rmSync(path.join(folder, `..${version - 1}`), { recursive: true });
      await soon(() => expect([rateLimit(), credits()]).toEqual([5 + version, 10 + version]));
    }
    const inForce = lines.filter(({ msg }) => msg === "a new configuration is in force");
    expect(inForce, "each swap is taken once, both files together").toHaveLength(2);
  });

  test("of the price file alone", async () => {
    const { folder, file } = givenFolder();
    const { live, credits } = givenLive(file);
    live.watch();
    writeFileSync(path.join(folder, "prices.yaml"), priced(99));
    await soon(() => expect(credits()).toBe(99));
  });

  test("when the config names another price file, which comes later and then changes", async () => {
    const { folder, file } = givenFolder();
    const { live, credits, lines } = givenLive(file);
    live.watch();
    writeFileSync(file, text(5).replace("prices.yaml", "new.yaml"));
    await soon(() => expect(lines.at(-1)?.msg).toContain("refused"));
    expect(lines.at(-2)?.msg).toContain("there is no such price file");
    for (const price of [20, 21]) {
      writeFileSync(path.join(folder, "new.yaml"), priced(price));
      await soon(() => expect(credits()).toBe(price));
    }
  });

  test("at once when asked for, and only if there is one", () => {
    const { file } = givenFolder();
    const { live, rateLimit } = givenLive(file);
    expect(live.reload("SIGHUP")).toBe("unchanged");
    writeFileSync(file, `# The same in other words.\n${text(5)}server: {}\n`);
    expect(live.reload("SIGHUP")).toBe("unchanged");
    writeFileSync(file, text(6));
    expect(live.reload("SIGHUP")).toBe("changed");
    expect(rateLimit()).toBe(6);
  });
});

describe("a bad file", () => {
  test("changes nothing, is explained in the log, and shows in the metrics until it is mended", async () => {
    const { file } = givenFolder();
    const { live, lines, metric, rateLimit } = givenLive(file);
    live.watch();
    const before = live.config();
    writeFileSync(file, text(6, "server:\n  prot: 80\ntasks: { max_age: 15 }\n"));
    await soon(() => expect(lines.at(-1)?.msg).toContain("the old one stays in force"));
    expect(live.config()).toBe(before);
    expect(lines.filter(({ level }) => level === "error").slice(0, -1)).toMatchObject([
      { line: 5, setting: "server.prot", msg: expect.stringContaining("is unknown; did you mean port?") },
      { line: 6, setting: "tasks.max_age", msg: expect.stringContaining("(write 15ms or 15s)") },
    ]);
    expect(lines[0]?.msg).toContain(`${file}:5: server.prot`);
    expect(await metric("tollgate_config_last_reload_successful")).toMatch(/ 0$/);
    expect(live.describe().last_reload).toMatchObject({ successful: false, problems: [{}, {}] });
    // The old contents again: nothing changes, but nothing is wrong any more.
    writeFileSync(file, text(5));
    await soon(async () => expect(await metric("tollgate_config_last_reload_successful")).toMatch(/ 1$/));
    expect(lines.at(-1)?.msg).toBe("the configuration is valid again");
    expect(live.config()).toBe(before);
    writeFileSync(file, text(7));
    await soon(() => expect(rateLimit()).toBe(7));
  });

  test.each(["", "# Tollgate's configuration.\n"])("never means the defaults: %j", async (content) => {
    const { file } = givenFolder();
    const { live, lines, rateLimit } = givenLive(file);
    live.watch();
    writeFileSync(file, content);
    await soon(() => expect(lines.at(-1)?.msg).toContain("refused"));
    expect(rateLimit()).toBe(5);
  });

  test("a price file that is broken keeps the limits of the same change back, too", () => {
    const { folder, file } = givenFolder();
    const { live, rateLimit } = givenLive(file);
    writeFileSync(file, text(6));
    writeFileSync(path.join(folder, "prices.yaml"), "gen2/text-to-video: 1\n");
    expect(live.reload("SIGHUP")).toBe("refused");
    expect(rateLimit()).toBe(5);
  });

  test("price lists that overlap have a code of their own and change nothing, not even the limits beside them", () => {
    const { file } = givenFolder();
    const { live, rateLimit, credits } = givenLive(file);
    const lists = (second: string): string =>
      text(6).replace(
        "prices.yaml",
        `[{ file: prices.yaml }, { from: 2030-02-01T00:00:00Z, file: prices.yaml }, { ${second}file: prices.yaml }]`,
      );
    for (const second of ["from: 2030-01-01T00:00:00Z, ", "from: 2030-02-01T01:00:00+01:00, ", ""]) {
      writeFileSync(file, lists(second));
      expect(readConfig({ env: {}, file }).loaded, second).toBeUndefined();
      expect(live.reload("SIGHUP"), second).toBe("refused");
      expect(live.describeFiles().problems).toMatchObject([
        { path: "prices.2.from", code: "price_lists_overlap" },
      ]);
      expect([rateLimit(), credits(), live.config().priceLists.length]).toEqual([5, 10, 1]);
    }
    writeFileSync(file, lists("from: 2030-03-01T00:00:00Z, "));
    expect(live.reload("SIGHUP")).toBe("changed");
    expect([rateLimit(), live.config().priceLists.length]).toEqual([6, 3]);
  });

  test("what cannot be made from a valid file keeps the old one in force, for everybody", () => {
    const { file } = givenFolder();
    const { live, rateLimit, lines } = givenLive(file);
    const applied = vi.fn<ChangeHooks["applied"]>();
    live.onChange({ prepare: () => undefined, applied });
    live.onChange({
      prepare() {
        throw new Error("no such thing");
      },
      applied,
    });
    writeFileSync(file, text(6));
    expect(live.reload("SIGHUP")).toBe("refused");
    expect(rateLimit()).toBe(5);
    expect(applied).not.toHaveBeenCalled();
    expect(lines.some(({ msg }) => String(msg).includes("no such thing"))).toBe(true);
  });
});

// Guarantee: a slip in a price file never reaches customers of a running gateway.
describe("a price that changes more than tenfold", () => {
  const confirming = (credits: number): string =>
    text(5, `confirm_price_changes: { "gen2/text-to-video": ${credits} }\n`);

  test.each([101, 1000])("is refused, with the value that confirms it: from 10 to %i", async (credits) => {
    const { folder, file } = givenFolder();
    const given = givenLive(file);
    writeFileSync(path.join(folder, "prices.yaml"), priced(credits));
    expect(given.live.reload("SIGHUP")).toBe("refused");
    expect(given.credits()).toBe(10);
    expect(await given.metric("tollgate_config_last_reload_successful")).toMatch(/ 0$/);
    expect(given.live.describe().last_reload.problems).toEqual([
      {
        file: path.join(folder, "prices.yaml"),
        path: "gen2/text-to-video",
        message: `changes more than tenfold, from 10 to ${credits} credits`,
      },
      {
        file,
        path: "confirm_price_changes",
        message: `if you mean these prices, set this to { "gen2/text-to-video": ${credits} }`,
      },
    ]);
    writeFileSync(file, confirming(credits));
    expect(given.live.reload("SIGHUP")).toBe("changed");
    expect(given.credits()).toBe(credits);
  });

  test.each([1, 100])("is what it says: from 10 to %i is not", (credits) => {
    const { folder, file } = givenFolder();
    const given = givenLive(file);
    writeFileSync(path.join(folder, "prices.yaml"), priced(credits));
    expect(given.live.reload("SIGHUP")).toBe("changed");
  });

  test("a confirmation that stays in the file confirms no other value", () => {
    const { folder, file } = givenFolder();
    const given = givenLive(file);
    writeFileSync(file, confirming(200));
    for (const [credits, outcome] of [
      [200, "changed"],
      [2001, "refused"],
      [19, "refused"],
    ] as const) {
      writeFileSync(path.join(folder, "prices.yaml"), priced(credits));
      expect(given.live.reload("SIGHUP"), `${credits}`).toBe(outcome);
    }
    expect(given.credits()).toBe(200);
  });

  test("a price of 0 is refused always, and so is a confirmation of it", () => {
    const { folder, file } = givenFolder();
    const given = givenLive(file);
    writeFileSync(path.join(folder, "prices.yaml"), priced(0));
    writeFileSync(file, confirming(0));
    expect(given.live.reload("SIGHUP")).toBe("refused");
    expect(given.live.describe().last_reload.problems).toHaveLength(2);
  });
});

describe("reload: signal", () => {
  test("applies a changed file at SIGHUP only, and says before that it waits", async () => {
    const { file } = givenFolder();
    writeFileSync(file, text(5, "reload: signal\n"));
    const { live, lines, rateLimit } = givenLive(file);
    live.watch();
    const waits = () => lines.filter(({ msg }) => String(msg).includes("send SIGHUP")).length;
    for (const [at, limit] of [6, 7].entries()) {
      writeFileSync(file, text(limit, "reload: signal\n"));
      await soon(() => expect(waits()).toBe(at + 1));
    }
    expect([rateLimit(), live.describe().awaiting_signal]).toEqual([5, true]);
    expect(live.reload("SIGHUP")).toBe("changed");
    expect([rateLimit(), live.describe().awaiting_signal]).toEqual([7, false]);
    writeFileSync(file, text(8));
    expect(live.reload("SIGHUP")).toBe("changed");
    writeFileSync(file, text(9));
    await soon(() => expect(rateLimit()).toBe(9));
  });
});

// Guarantee: an operator sees what SIGHUP would change before sending it.
describe("what waits for SIGHUP", () => {
  async function givenWaiting(change: (folder: string, file: string) => void) {
    const { folder, file } = givenFolder();
    writeFileSync(file, text(5, "reload: signal\n"));
    const given = givenLive(file);
    given.live.watch();
    expect(given.live.describeFiles()).toEqual({ differs: [], problems: [] });
    change(folder, file);
    await soon(() => expect(given.live.describe().awaiting_signal).toBe(true));
    return { ...given, file };
  }

  test("is listed with what needs a restart, and leaves the list as it comes into force", async () => {
    const { live, rateLimit } = await givenWaiting((folder, file) => {
      writeFileSync(path.join(folder, "prices.yaml"), priced(11));
      writeFileSync(file, text(6, "reload: signal\nserver: { port: 8081 }\n"));
    });
    const port = { setting: "server.port", from: 8080, to: 8081, needsRestart: true };
    await soon(() =>
      expect(live.describeFiles()).toEqual({
        differs: [
          { setting: "tiers.standard.rate_limit", from: 5, to: 6, needsRestart: false },
          { setting: "gen2/text-to-video", from: 10, to: 11, needsRestart: false },
          port,
        ],
        problems: [],
      }),
    );
    expect(rateLimit()).toBe(5);
    live.reload("SIGHUP");
    expect(live.describeFiles()).toEqual({ differs: [port], problems: [] });
  });

  test("is named as wrong if SIGHUP would refuse it, and the earlier refusal is not", async () => {
    const { live, file } = await givenWaiting((_, name) => writeFileSync(name, "servre: {}\n"));
    const refused = { differs: [], problems: [expect.objectContaining({ path: "servre", line: 1 })] };
    expect(live.describeFiles()).toEqual(refused);
    expect(live.reload("SIGHUP")).toBe("refused");
    expect(live.describeFiles()).toEqual(refused);
    writeFileSync(file, text(6, "reload: signal\n"));
    await soon(() => expect(live.describeFiles()).toMatchObject({ differs: [{ to: 6 }], problems: [] }));
    const tenfold = path.join(path.dirname(file), "more.yaml");
    writeFileSync(tenfold, priced(1000));
    writeFileSync(file, text(5, "reload: signal\n").replace("prices.yaml", "more.yaml"));
    await soon(() =>
      expect(live.describeFiles()).toMatchObject({
        differs: [{ setting: "prices" }, { setting: "gen2/text-to-video", from: 10, to: 1000 }],
        problems: [{ path: "gen2/text-to-video" }, { path: "confirm_price_changes" }],
      }),
    );
    // It is not watched before it is in force.
    writeFileSync(tenfold, priced(12));
    expect(live.describeFiles()).toMatchObject({
      differs: [{ setting: "prices" }, { setting: "gen2/text-to-video", from: 10, to: 12 }],
      problems: [],
    });
  });
});

describe("what needs a restart", () => {
  test("keeps its value, is named in the log each time, and the rest takes effect", async () => {
    const { file } = givenFolder();
    const { live, lines, rateLimit, metric } = givenLive(file);
    writeFileSync(file, text(6, "server: { port: 8081, drain_delay: 9s }\nstore: { partitions: 8 }\n"));
    expect(live.reload("SIGHUP")).toBe("changed");
    expect(rateLimit()).toBe(6);
    expect(live.config()).toMatchObject({
      server: { port: 8080, drainDelayMs: 9000 },
      store: { partitions: 64 },
    });
    const waiting = ["server.port: 8080 to 8081", "store.partitions: 64 to 8"];
    expect(lines.find(({ level }) => level === "warn")).toMatchObject({ settings: waiting });
    expect(live.describe().awaiting_restart).toEqual([
      { setting: "server.port", file: 8081 },
      { setting: "store.partitions", file: 8 },
    ]);
    expect(await metric("tollgate_config_settings_awaiting_restart")).toMatch(/ 2$/);
    writeFileSync(file, text(7));
    live.reload("SIGHUP");
    expect(live.describe().awaiting_restart).toEqual([]);
  });

  // Guarantee: what is told to be in force is: the connection to Redis has these from the start.
  test("is all that the connection to Redis was made with", () => {
    const { file } = givenFolder();
    const { live } = givenLive(file);
    const { fallbackStrategy, allowMaxPerKey, ledgerCheckIntervalMs, ...atStart } = live.config().store;
    const store =
      "{ redis_url: redis://other:6379, command_timeout: 1s, confirm_replicas: 2, confirm_timeout: 1s, journal: other, " +
      "partitions: 8, allow_no_persistence: true, fallback_strategy: allow, allow_max_per_key: 7, ledger_check_interval: 2h }";
    writeFileSync(file, text(5, `store: ${store}\n`));
    expect(live.reload("SIGHUP")).toBe("changed");
    const { store: after } = live.config();
    expect(after).toMatchObject(atStart);
    expect(after).not.toMatchObject({ fallbackStrategy });
    expect(after).not.toMatchObject({ allowMaxPerKey });
    expect(after).not.toMatchObject({ ledgerCheckIntervalMs });
  });

  test("are settings that exist", () => {
    const names = Object.entries<object>(ConfigSchema.properties).flatMap(([section, schema]) =>
      "properties" in schema
        ? Object.keys(schema.properties as object).map((key) => `${section}.${key}`)
        : [],
    );
    expect([...NEEDS_RESTART].filter((name) => !names.includes(name))).toEqual([]);
  });
});

test("what is in force is shown with its hash, and without secrets", async () => {
  const { file } = givenFolder();
  const env = { REDIS_URL: "redis://app:hunter2@redis:6379", UPSTREAM_API_KEY: "up_5ecret", PORT: "9000" };
  const { live, metric } = givenLive(file, env);
  const before = live.describe();
  expect(JSON.stringify(before)).not.toMatch(/hunter2|5ecret/);
  expect(before).toMatchObject({
    file,
    settings: { server: { port: 9000 }, store: { redis_url: "redis://app:***@redis:6379" } },
    prices: { "gen2/text-to-video": 10 },
    from_environment: { "server.port": "PORT", "store.redis_url": "REDIS_URL" },
  });
  expect(await metric("tollgate_config_info")).toBe(`tollgate_config_info{hash="${before.hash}"} 1`);
  // Another password, another order: the same configuration.
  writeFileSync(
    file,
    text(5)
      .split("\n")
      .toReversed()
      .join("\n")
      .replace(/(.*standard.*)\ntiers:/, "tiers:\n$1"),
  );
  const other = givenLive(file, { ...env, REDIS_URL: "redis://app:other@redis:6379" });
  expect(other.live.describe().hash).toBe(before.hash);
  // Two gateways on one host.
  const beside = { ...env, PORT: "9001", HOST: "127.0.0.1", ADMIN_PORT: "9002", ADMIN_HOST: "0.0.0.0" };
  expect(givenLive(file, beside).live.describe().hash).toBe(before.hash);
  // Two machines with the systemd unit, which names each in ADMIN_HOSTS.
  const elsewhere = { ...env, ADMIN_HOSTS: "gateway-2" };
  expect(givenLive(file, elsewhere).live.describe().hash).toBe(before.hash);
  writeFileSync(file, text(6));
  live.reload("SIGHUP");
  const after = live.describe();
  expect(after.hash).not.toBe(before.hash);
  const page = [await metric("tollgate_config_info")];
  expect(page).toEqual([`tollgate_config_info{hash="${after.hash}"} 1`]);
});

test("a file that is still being written is not taken for whole", async () => {
  const file = givenFiles({ "a.yaml": "0" });
  const known = new Map<string, Buffer>([[file, Buffer.from("0")]]);
  let looks = 0;
  const seen: string[] = [];
  const watching = watchFiles({
    everyMs: 1,
    known() {
      // Asked for each time anew: until the tenth time, each look finds something else.
      if (looks++ < 10) writeFileSync(file, "x".repeat(looks));
      return known;
    },
    changed(contents) {
      const bytes = contents.get(file);
      seen.push(String(bytes));
      if (bytes) known.set(file, bytes);
    },
  });
  onTestFinished(watching.stop);
  await soon(() => expect(looks).toBeGreaterThan(30));
  expect(seen).toEqual(["x".repeat(10)]);
});

test("a change of a file that has not changed for long is seen, whatever its size and its times", async () => {
  const file = givenFiles({ "a.yaml": "0", "b.yaml": "2" });
  const known = new Map<string, Buffer>([[file, Buffer.from("0")]]);
  const watching = watchFiles({
    everyMs: 1,
    // The file seems to be old at each look.
    nowMs: () => Date.now() + 3_600_000,
    known: () => known,
    changed: (contents) => contents.forEach((bytes, name) => void known.set(name, bytes ?? Buffer.of())),
  });
  onTestFinished(watching.stop);
  const { atime, mtime } = statSync(file);
  writeFileSync(file, "1");
  utimesSync(file, atime, mtime);
  await soon(() => expect(String(known.get(file))).toBe("1"));
  const other = path.join(path.dirname(file), "b.yaml");
  utimesSync(other, atime, mtime);
  renameSync(other, file);
  await soon(() => expect(String(known.get(file))).toBe("2"));
});

test("what is made from a part is made anew only when that part changes, and kept for older snapshots", () => {
  const make = vi.fn(({ upstream }: { upstream: { url: string } }) => ({ url: upstream.url }));
  const upstream = memoizeByConfigPart((config) => config.upstream, make);
  const [first, same, other] = [
    configOf("upstream: { url: http://a }"),
    configOf("upstream: { url: http://a }\nlog: { level: warn }"),
    configOf("upstream: { url: http://b }"),
  ] as const;
  expect(upstream(same)).toBe(upstream(first));
  expect(upstream(other).url).toBe("http://b");
  expect(upstream(first).url).toBe("http://a");
  expect(make).toHaveBeenCalledTimes(2);
});

// Guarantee: a secret in the path of UPSTREAM_URL stands in no log line and on no page, and another path takes effect.
test("the path of the upstream's address is shown nowhere, and a new one is a change", () => {
  const upstream = (path: string) => `upstream: { url: "https://generator.example.com/${path}" }\n`;
  const file = givenFiles({ "tollgate.yaml": upstream("hunter2/v1") });
  const { live, lines } = givenLive(file);
  const before = live.describe().hash;
  writeFileSync(file, upstream("hunter3/v1"));
  expect(live.reload("test")).toBe("changed");
  expect(live.config().upstream.url).toBe("https://generator.example.com/hunter3/v1");
  expect(live.describe().hash).not.toBe(before);
  const shown = JSON.stringify([lines, live.describe(), redact(live.config())]);
  expect(shown).not.toMatch(/hunter/);
  expect(live.describe().settings.upstream.url).toBe("https://generator.example.com/***");
});
