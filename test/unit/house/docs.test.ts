import { existsSync, globSync, readdirSync, readFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { describe, expect, test } from "vitest";
import { parse } from "yaml";
import { COMMON_HEADERS, FURTHER_HEADERS } from "../../../src/api/document.ts";
import { applyOverrides } from "../../../src/config/environment.ts";
import { NEEDS_RESTART } from "../../../src/config/schema.ts";
import { ERROR_NAMES, refuse } from "../../../src/domain/errors.ts";
import {
  accountNames,
  archiveNames,
  callbackQueuesName,
  claimName,
  endpointNames,
  eventName,
  frozenName,
  idempotencyName,
  indexName,
  keyRef,
  MAINTENANCE,
  META,
  markName,
  partitionNames,
  probeName,
  referencePlace,
  refusalLogNames,
  refusalsName,
  replayedName,
  requestName,
  soldName,
  spentName,
  taskName,
  termName,
  tokenNames,
  totalsName,
  unclaimedName,
  usageName,
  webhookNames,
  webhooksName,
} from "../../../src/records/names.ts";
import { readScript } from "../../../src/redis/script-source.ts";
import { VARIABLES } from "../../../src/sandbox/demo.ts";
import { SCRIPTS } from "../../../src/scripts/all.ts";
import { createLogger, logRequest } from "../../../src/telemetry/log.ts";

const ROOT = join(import.meta.dirname, "../../..");
const read = (file: string): string => readFileSync(join(ROOT, file), "utf8");
const README = read("README.md");
const ARCHITECTURE = read("docs/ARCHITECTURE.md");
const LESSONS = read("docs/lessons.md");
const PAGES = globSync("{*.md,docs/**/*.md,bench/*.md}", { cwd: ROOT }).sort();

/** The rows of the first table below a heading, as cells without their backticks. */
function table(page: string, heading: string): string[][] {
  const [, below = ""] = page.split(`\n## ${heading}\n`);
  const lines = below.split("\n");
  const start = lines.findIndex((line) => line.startsWith("| "));
  const length = lines.slice(start).findIndex((line) => !line.startsWith("|"));
  expect(start, `a table below ${heading}`).toBeGreaterThanOrEqual(0);
  return lines.slice(start + 2, start + length).map((line) =>
    line
      .slice(1, -1)
      .split("|")
      .map((cell) => cell.trim().replaceAll("`", "")),
  );
}

/** Headings as GitHub names their anchors. */
function anchors(page: string): string[] {
  return [...page.matchAll(/^#+ (.+)$/gm)].map(([, heading = ""]) =>
    heading
      .toLowerCase()
      .replaceAll(/[^\w\- ]/g, "")
      .replaceAll(" ", "-"),
  );
}

/** Links of a page that lead nowhere; those to other hosts are not followed. */
function brokenLinks(file: string, page: string): string[] {
  const prose = page.replaceAll(/^```[\s\S]*?^```/gm, "").replaceAll(/`[^`\n]*`/g, "");
  const links = [...prose.matchAll(/\]\(([^)\s]+)\)/g)].map(([, target = ""]) => target);
  return links.filter((target) => {
    if (/^https?:\/\//.test(target)) return false;
    const [path = "", anchor] = target.split("#");
    const linked = path === "" ? join(ROOT, file) : join(ROOT, dirname(file), path);
    if (!existsSync(linked)) return true;
    return anchor !== undefined && !anchors(readFileSync(linked, "utf8")).includes(anchor);
  });
}

describe("every page", () => {
  test.each(PAGES)("%s has links that lead somewhere", (file) => {
    expect(brokenLinks(file, read(file))).toEqual([]);
  });

  test("a link to a file or a heading that is not there is found", () => {
    const page = "[a](nowhere.md) [b](#nowhere) [c](#some-heading) `[d](code.md)`\n\n## Some heading\n";
    expect(brokenLinks("README.md", page)).toEqual(["nowhere.md", "#nowhere", "#some-heading"]);
    expect(anchors(page)).toEqual(["some-heading"]);
  });

  test("the index lists every decision, in order", () => {
    const files = readdirSync(join(ROOT, "docs/decisions")).filter((file) => file !== "README.md");
    const listed = [...read("docs/decisions/README.md").matchAll(/^\| \[\d{4}\]\(([^)]+)\)/gm)];
    expect(listed.map(([, file]) => file)).toEqual(files.sort());
  });
});

describe("README and the tables that it leads to", () => {
  test("CONTRIBUTING has one line for each dependency, and none for others", () => {
    const { dependencies, devDependencies } = JSON.parse(read("package.json"));
    const listed = table(read("CONTRIBUTING.md"), "Dependencies");
    expect(listed.map(([name]) => name)).toEqual([
      ...Object.keys(dependencies),
      ...Object.keys(devDependencies),
    ]);
    expect(listed.filter(([, why]) => !why)).toEqual([]);
  });

  test("docs/api.md has the errors of the code", () => {
    const listed = table(read("docs/api.md"), "Errors").map(([status, code, name]) => [status, code, name]);
    const inCode = ERROR_NAMES.map((name) => {
      const { status, code } = refuse(name);
      return [String(status), String(code), name];
    });
    expect(listed).toEqual(inCode);
  });

  test("docs/api.md names every header of our own that an answer may have, and the README every page of the admin port", () => {
    const headers = [...Object.keys(COMMON_HEADERS), ...Object.keys(FURTHER_HEADERS)].filter(
      (name) => !["WWW-Authenticate", "Allow", "Upgrade"].includes(name),
    );
    const listed = table(read("docs/api.md"), "Headers").flatMap(([names = ""]) => {
      const [first = "", ...others] = names.replace(/:.*$/, "").split(", ");
      return [first, ...others.map((name) => name.replace(/^-/, `${first.replace(/-[^-]+$/, "")}-`))];
    });
    expect(listed.sort()).toEqual(headers.sort());
    const pages = [...read("src/admin/admin-server.ts").matchAll(/there are (.*)"/g)].flatMap(
      ([, words = ""]) => words.match(/\/[\w./-]+/g) ?? [],
    );
    expect(pages.length).toBeGreaterThan(5);
    const [, operating = ""] = README.split("\n## Operating it\n");
    expect(pages.filter((page) => !operating.includes(page.replace("/console", "console.md")))).toEqual([]);
  });

  test("the variables of docs/configuration.md are those that override a setting, with the defaults of config/tollgate.yaml", () => {
    // An environment in which every variable is set gives away all that are read.
    const everything = new Proxy<Record<string, string>>({}, { get: () => "1" });
    const settings = parse(read("config/tollgate.yaml"));
    const overrides = [...applyOverrides({}, everything).origins].map(([setting, name]) => {
      const [section = "", key = ""] = setting.split(".");
      return [name, setting, String(settings[section][key])];
    });
    const listed = table(read("docs/configuration.md"), "Environment variables").map(
      ([name, setting, initial]) => [name, setting, initial],
    );
    expect(listed.filter(([, setting]) => setting).sort()).toEqual(overrides.sort());
  });

  test("all of them are in the file with which other terminals find the gateway of npm start", () => {
    const listed = table(read("docs/configuration.md"), "Environment variables").map(([name = ""]) => name);
    expect([...VARIABLES].sort()).toEqual([...listed, "NODE_EXTRA_CA_CERTS"].sort());
  });

  test("variables that override no setting are read by the configuration", () => {
    const source = read("src/config/config.ts") + read("src/config/environment.ts");
    const others = table(read("docs/configuration.md"), "Environment variables").filter(
      ([, setting]) => !setting,
    );
    expect(others.map(([name]) => name)).toEqual([
      "TOLLGATE_CONFIG",
      "UPSTREAM_API_KEY",
      "UPSTREAM_PREVIOUS_API_KEY",
      "ADMIN_TOKEN",
      "ARCHIVE_URL",
      "WEBHOOK_SECRET_KEY",
      "WEBHOOK_SECRET_KEY_PREVIOUS",
    ]);
    const isRead = (name = ""): boolean => source.includes(`"${name}"`);
    expect(others.filter(([name]) => !isRead(name))).toEqual([]);
  });

  test("npm scripts that it names exist", () => {
    const { scripts } = JSON.parse(read("package.json"));
    const named = [...README.matchAll(/npm run (?:-s )?([a-z]+)/g)].map(([, name = ""]) => name);
    expect(named.filter((name) => !(name in scripts))).toEqual([]);
  });
});

test("docs/configuration.md says of each setting that needs a restart why", () => {
  const rows = table(read("docs/configuration.md"), "What needs a restart");
  const listed = rows.flatMap(([names = ""]) => names.split(", "));
  expect(listed.sort()).toEqual([...NEEDS_RESTART].sort());
  expect(rows.filter(([, why]) => !why)).toEqual([]);
});

test("docs/logging.md has every field of a request's line, and no other", () => {
  const lines: string[] = [];
  const log = createLogger("info", { write: (line) => void lines.push(line) });
  const request = {
    req: { method: "GET" },
    requestId: "req_1",
    shownId: "order-1",
    trace: { traceId: "t" },
    route: "none",
    keyId: "k",
    accountId: "a",
    taskId: "t",
    price: 10,
    upstreamMs: 1,
    degraded: true,
    shadow: ["rate_limit"],
    clientGone: true,
  };
  const refused = {
    detail: "d",
    limit: 20,
    used: 20,
    limitOf: "account",
    balance: 5,
    retryAfterSeconds: 7,
  } as const;
  logRequest(log, "info", request, { status: 200, outcome: "ok", elapsedMs: 1, refused });
  const { level, time, service, ...fields } = JSON.parse(lines[0]!);
  const documented = table(read("docs/logging.md"), "The line of a request").flatMap(([names = ""]) =>
    names.split(", "),
  );
  expect(documented.sort()).toEqual(Object.keys(fields).sort());
});

describe("ARCHITECTURE", () => {
  test("what a folder may import is what biome.json says", () => {
    const rules = [...read("biome.json").matchAll(/src\/(\w+) may import ([\w, ]+);/g)];
    const inBiome = Object.fromEntries(rules.map(([, folder, allowed]) => [folder, allowed]));
    const rows = table(ARCHITECTURE, "Code map").map(([link = "", , allowed]) => [
      /src\/(\w+)/.exec(link)?.[1],
      allowed,
    ]);
    expect(Object.fromEntries(rows)).toEqual(inBiome);
  });

  test("the table of Redis keys has every name that the code makes, and no other", () => {
    const { names } = keyRef("<key id>", "<account id>", 7);
    const made = [
      META,
      MAINTENANCE.replace("{p00}", "{p07}"),
      indexName("<sha256>"),
      claimName("<task id>"),
      ...Object.values(partitionNames(7)),
      ...Object.values(accountNames(7, "<account id>")),
      ...Object.values(archiveNames(7)),
      ...Object.values(names),
      requestName(7, "<request id>"),
      taskName("<task id>", 7),
      unclaimedName(7, "<task id>"),
      idempotencyName(7, "<digest>"),
      probeName(7, "<uuid>"),
      markName(7, "<gateway>"),
      frozenName(7),
      refusalsName(7, "<UTC day>"),
      soldName(7, "<UTC month>"),
      spentName(7, "<UTC day>"),
      ...Object.values(refusalLogNames(7, "<key id>")),
      usageName(7, "<account id>", "<UTC month>"),
      referencePlace(7, "").name.replace(/[0-9a-f]{2}$/, "<2 characters>"),
      totalsName(7, "<UTC month>"),
      replayedName(7),
      termName(7),
      ...Object.values(tokenNames("<token id>")),
      ...Object.values(webhookNames(7)),
      ...Object.values(endpointNames(7, "<endpoint id>")),
      webhooksName(7, "<account id>"),
      callbackQueuesName(7, "<account id>"),
      eventName(7, "<event id>"),
    ].map((name) => name.replace("{p07}", "{pNN}"));
    // A few belong to no account and are named where they are used.
    const elsewhere = globSync(
      "src/{records,redis,durability,settlement,operations,ledger,archive,jobs}/**/*.ts",
      { cwd: ROOT },
    )
      .filter((file) => !file.endsWith("/names.ts"))
      .flatMap((file) => [...read(file).matchAll(/["`]tg:[a-z-]+/g)].map(([name]) => name.slice(1)));
    const listed = table(read("docs/records.md"), "What lives in which Redis key").map(([name = ""]) => name);
    expect(made.filter((name) => !listed.includes(name))).toEqual([]);
    expect(elsewhere.filter((start) => !listed.some((name) => name.startsWith(start)))).toEqual([]);
    const isMade = (name: string) => made.includes(name) || elsewhere.some((start) => name.startsWith(start));
    expect(listed.filter((name) => !isMade(name))).toEqual([]);
  });

  test("the table of Redis keys names scripts that exist, and all that write ledger, audit and ends of tasks", () => {
    const rows = table(read("docs/records.md"), "What lives in which Redis key");
    const writersOf = new Map(
      rows.map(([name = "", , , , by = ""]) => [name, by.match(/\b[A-Z][A-Z-]{2,}\b/g) ?? []]),
    );
    const scripts = SCRIPTS.map(({ name }) => ({ word: name.toUpperCase(), lua: readScript(name) }));
    const words = scripts.map(({ word }) => word);
    expect([...writersOf.values()].flat().filter((word) => !words.includes(word))).toEqual([]);
    for (const [name, call] of [
      ["ledger", /\b(post|post_refund)\(/],
      ["audit", /\b(write_audit|change_key|disable_endpoint)\(/],
      ["ended", /\bnote_ended\(/],
    ] as const) {
      const writing = scripts.filter(({ lua }) => call.test(lua)).map(({ word }) => word);
      expect(writersOf.get(`tg:{pNN}:${name}`), name).toEqual(expect.arrayContaining(writing));
      expect(writing.length).toBeGreaterThan(2);
    }
  });
});

/** Promises of a row of the lessons that it does not keep: links, and for tests words of a title or of a case. */
function unproved([lesson, proofs = ""]: string[]): string[] {
  const links = [...proofs.matchAll(/\[[^\]]+\]\(([^)#]+)[^)]*\)([^[]*)/g)];
  if (!lesson || links.length === 0) return [`no proof: ${lesson}`];
  return links.flatMap(([, target = "", behind = ""]) => {
    const file = join(ROOT, "docs", target);
    if (!existsSync(file)) return [`no file: ${target}`];
    if (!target.startsWith("../test/")) return [];
    const titles = [...behind.matchAll(/"([^"]+)"/g)].map(([, title = ""]) => title);
    if (titles.length === 0) return [`no title: ${target}`];
    const texts = [...readFileSync(file, "utf8").matchAll(/(["`])((?:(?!\1).)+)\1/g)].map(([text]) => text);
    return titles.filter((title) => !texts.some((text) => text.includes(title)));
  });
}

describe("lessons", () => {
  const headings = [...LESSONS.matchAll(/^## (.+)$/gm)].map(([, heading = ""]) => heading);

  test("none is lost: as many rows as there were lessons to begin with", () => {
    const rows = headings.map((heading) => [heading, table(LESSONS, heading).length]);
    expect(rows).toEqual([
      ["Slots", 5],
      ["Money", 12],
      ["The store", 6],
      ["HTTP", 7],
      ["Operations", 5],
    ]);
  });

  test("each has a test that is there, or a page that gives the reason", () => {
    expect(headings.flatMap((heading) => table(LESSONS, heading)).flatMap(unproved)).toEqual([]);
  });

  test("a row without a link, without a title, or with one that is no text of its file is found", () => {
    const own = "[docs](../test/unit/house/docs.test.ts)";
    expect(unproved(["a", "because"])).toEqual(["no proof: a"]);
    expect(unproved(["a", `${own}, [b](../test/none.test.ts) "b"`])).toEqual([
      "no title: ../test/unit/house/docs.test.ts",
      "no file: ../test/none.test.ts",
    ]);
    const client = "[client](../test/unit/redis/client.test.ts)";
    expect(unproved(["a", `${client} "neither resends, retries", "resends twice"`])).toEqual([
      "resends twice",
    ]);
  });
});
