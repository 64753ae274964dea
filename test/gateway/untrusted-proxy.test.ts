import { expect, onTestFinished, test } from "vitest";
import { givenGateway } from "../support/gateway.ts";

const HEADERS = { "x-forwarded-for": "203.0.113.9" };
const CREDITS = "/api/v1/credits";

async function givenBehind(trustProxy: string[]) {
  const gateway = await givenGateway({ config: { server: { trustProxy } } });
  onTestFinished(() => gateway.stop());
  const counted = async (): Promise<number> =>
    Number((await gateway.metric("tollgate_untrusted_proxy_total "))[0]?.split(" ")[1]);
  const ask = async (key: string, headers: Record<string, string> = HEADERS) =>
    (await gateway.request("GET", CREDITS, { key, headers })).status;
  const warnings = () => gateway.logs.filter((line) => line.includes("server.trust_proxy")).length;
  return { gateway, counted, ask, warnings };
}

// Guarantee: a gateway whose customers all share one address says so before one of them locks the others out.
test("good keys that come through a proxy that is not trusted are counted and warned of, guesses are not", async () => {
  const { gateway, counted, ask, warnings } = await givenBehind([]);
  expect(await ask("sk_unknown")).toBe(401);
  expect(await ask((await gateway.givenKey()).key, {})).toBe(200);
  expect([await counted(), warnings()]).toEqual([0, 0]);
  for (let nth = 0; nth < 2; nth++) expect(await ask((await gateway.givenKey()).key)).toBe(200);
  expect([await counted(), warnings()]).toEqual([2, 1]);
});

test("good keys that come through a trusted proxy are not", async () => {
  const { gateway, counted, ask, warnings } = await givenBehind(["127.0.0.1"]);
  expect(await ask((await gateway.givenKey()).key)).toBe(200);
  expect([await counted(), warnings()]).toEqual([0, 0]);
});
