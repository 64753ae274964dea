import { randomBytes } from "node:crypto";
import { expect, test } from "vitest";
import { labelSet } from "../../tools/metrics-labels.ts";
import { givenGateway, type TestGateway, until } from "../support/gateway.ts";
import { rawClient } from "./spec-stage.ts";

const WAVES = 3;
const PER_WAVE = 120;
const METHODS = ["GET", "POST", "PUT", "DELETE", "PATCH", "PROPFIND", "MKCOL", "REPORT", "LINK"];

const word = (): string => randomBytes(6).toString("hex");

/** Values by which a client could hope to add series; each answer is fine. */
async function hostileWave(gateway: TestGateway): Promise<string[]> {
  const words: string[] = [];
  const marked = (): string => {
    words.push(word());
    return words.at(-1)!;
  };
  const { key } = await gateway.givenKey({ accountId: `acc_${marked()}`, credits: 100 });
  const asks = Array.from({ length: PER_WAVE }, (_, nth) => {
    const method = METHODS[nth % METHODS.length]!;
    const path = [
      `/${marked()}`,
      `/api/v1/${marked()}`,
      `/api/v1/tasks/${marked()}`,
      `/api/v1/gen2/${marked()}`,
      `/api/v1/credits?${marked()}=${marked()}`,
    ][nth % 5]!;
    const headers = { "X-Request-Id": marked(), "User-Agent": marked(), "X-Forwarded-For": `10.0.${nth}.1` };
    return gateway.request(method, path, { key: nth % 3 ? key : `sk_${marked()}`, headers });
  });
  asks.push(
    gateway.request("POST", "/api/v1/gen2/text-to-video", {
      key,
      body: { prompt: marked() },
      headers: { "Idempotency-Key": marked() },
    }),
  );
  await Promise.all(asks);
  for (const line of [
    `${marked()} /${marked()} HTTP/1.1`,
    `GET /${marked()} HTTP/3.${words.length}`,
    marked(),
  ]) {
    const client = await rawClient(gateway.url);
    client.write(`${line}\r\nHost: ${marked()}\r\n\r\n`);
    await client.answer();
    client.end();
  }
  return words;
}

const SERIES = /^(\w+?)(?:\{(.*)\})? \S+$/;

/** The series of the page: everything before the value. */
async function seriesOf(gateway: TestGateway): Promise<Set<string>> {
  const page = await (await fetch(`${gateway.adminUrl}/metrics`)).text();
  return new Set(
    page
      .split("\n")
      .filter((line) => SERIES.test(line))
      .map((line) => line.replace(/ \S+$/, "")),
  );
}

test("hundreds of random paths, keys, accounts, methods and headers add no series after the first of their kind", async () => {
  const gateway = await givenGateway({ config: { server: { unknownKeysPerMinute: 100_000 } } });
  try {
    const words = await hostileWave(gateway);
    // Seconds after the start, off the way of requests.
    for (const late of ["tollgate_primary_info", "tollgate_tier_keys"])
      await until(async () => (await gateway.metric(`${late}{`)).length > 0, late);
    const known = await seriesOf(gateway);
    for (let wave = 1; wave < WAVES; wave++) words.push(...(await hostileWave(gateway)));
    const after = await seriesOf(gateway);

    // Kinds of garbage collection come when V8 thinks fit; there are four. The roll-up of the charge comes when the gateway looks.
    const isLate = (series: string): boolean =>
      series.startsWith("nodejs_gc_") || series.includes('script="rollup"');
    const added = [...after].filter((series) => !known.has(series) && !isLate(series));
    expect(added).toEqual([]);
    expect(after.size).toBeGreaterThan(200);
    const page = [...after].join("\n");
    expect(words.length).toBeGreaterThan(900);
    expect(words.filter((mark) => page.includes(mark))).toEqual([]);
    expect([...after].flatMap(strayLabels)).toEqual([]);
  } finally {
    await gateway.stop();
  }
});

/** Labels of a series whose value is not among those that docs/metrics.md lists. */
function strayLabels(series: string): string[] {
  const [, name = "", inside = ""] = /^(\w+)(?:\{(.*)\})?$/.exec(series) ?? [];
  if (!name.startsWith("tollgate_")) return [];
  const family = name.replace(/_(bucket|sum|count)$/, "");
  return [...inside.matchAll(/(\w+)="([^"]*)"/g)].flatMap(([, label = "", value = ""]) => {
    if (label === "le") return [];
    const set = labelSet(family, label);
    if (label === "status") return /^[1-5]\d\d$/.test(value) ? [] : [`${series}: ${value}`];
    return typeof set === "string" || set.values.includes(value) ? [] : [`${series}: ${label}`];
  });
}
