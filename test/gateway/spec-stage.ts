import { connect, type Socket } from "node:net";
import { expect } from "vitest";
import { openApiText } from "../../src/api/document.ts";
import { readAccount } from "../../src/operations/accounts/accounts.ts";
import { patchAccount } from "../../src/operations/accounts/operator-accounts.ts";
import { grantCredits } from "../../src/operations/credits/grants.ts";
import type { IssuedKey } from "../../src/operations/keys/issue-key.ts";
import { cliActor } from "../../src/records/actor.ts";
import { keyRef } from "../../src/records/names.ts";
import type { AccountStatus } from "../../src/records/records.ts";
import { oneNode } from "../../src/redis/store-facts.ts";
import { type Reply, type RequestOptions, type TestGateway, until } from "../support/gateway.ts";
import { readDescription } from "../support/openapi.ts";
import { setKeyFields } from "../support/stored-records.ts";

export const TEXT_TO_VIDEO = "/api/v1/gen2/text-to-video";
export const PRO_TEXT_TO_VIDEO = "/api/v1/gen2-pro/text-to-video";
export const BOAT = { prompt: "a paper boat" };

const NUMBERS = [
  "x-ratelimit-limit",
  "x-ratelimit-remaining",
  "x-ratelimit-reset",
  "x-concurrent-limit",
  "x-concurrent-active",
];

/** Holds an answer to everything that is promised of every answer, whatever it is. Answers it again. */
export function conforming<R extends Reply>(reply: R): R {
  const { status, headers, body } = reply;
  for (const name of NUMBERS) expect(headers.get(name), `${status} ${name}`).toMatch(/^\d+$/);
  expect(headers.get("x-request-id"), "X-Request-Id").toMatch(/^[\w.~-]+$/);
  expect(headers.get("content-type")).toMatch(/^application\/json\b/);
  expect(Number(headers.get("x-ratelimit-remaining"))).toBeLessThanOrEqual(
    Number(headers.get("x-ratelimit-limit")),
  );
  if (status === 200) {
    expect(body).toMatchObject({ code: 200, msg: "success", data: expect.any(Object) });
    return reply;
  }
  expect(body.code).toEqual(expect.any(Number));
  expect(body.code).not.toBe(200);
  expect(body.msg).toMatch(/\S/);
  expect(body.error).toBe(body.msg);
  expect(body.request_id).toBe(headers.get("x-request-id"));
  expect(body.data).toBeUndefined();
  expect(headers.get("retry-after")).toBe(body.retryAfter === undefined ? null : String(body.retryAfter));
  if (body.retryAfter !== undefined) {
    expect(Number.isInteger(body.retryAfter)).toBe(true);
    expect(body.retryAfter).toBeGreaterThanOrEqual(1);
  }
  expect(headers.get("www-authenticate")).toBe(status === 401 ? "Bearer" : null);
  expect(headers.has("allow")).toBe(status === 405);
  return reply;
}

/** Zeros, and a Reset of about now: nobody is known. */
export function expectNobody(reply: Reply): void {
  expect(NUMBERS.filter((name) => !name.endsWith("reset")).map((name) => reply.headers.get(name))).toEqual(
    Array(4).fill("0"),
  );
  expect(Math.abs(Number(reply.headers.get("x-ratelimit-reset")) - Date.now() / 1000)).toBeLessThan(5);
}

const description = readDescription(JSON.parse(openApiText()));

/** Sends a request and holds the answer to what every answer must have, and to what the API description says of it. */
export function asking(gateway: TestGateway) {
  return async (method: string, path: string, request: RequestOptions = {}): Promise<Reply> => {
    const reply = conforming(await gateway.request(method, path, request));
    const operation = description.at(path);
    if (operation) description.hold(operation.operationId, reply);
    return reply;
  };
}

/** All facts of a key and its account that a request could consume. */
export async function consumption(gateway: TestGateway, issued: IssuedKey) {
  const account = await readAccount(oneNode(gateway.redis), issued.accountId);
  const credits = await gateway.request("GET", "/api/v1/credits", { key: issued.key });
  return {
    balance: account.balance,
    held: account.held,
    totalUsed: account.totalUsed,
    totalRequests: account.totalRequests,
    transactions: account.recent.length,
    remaining: Number(credits.headers.get("x-ratelimit-remaining")),
    active: Number(credits.headers.get("x-concurrent-active")),
  };
}

/** A key that may do exactly one thing: one request, one task, one day, the price of one standard video. */
export function givenTightKey(gateway: TestGateway, changes: { rate_limit?: number; credits?: number } = {}) {
  const { rate_limit = 1, credits = 10 } = changes;
  return gateway.givenKey({ credits, limits: { rate_limit, max_concurrent: 1, daily_limit: 1 } });
}

/**
 * Proves that the key has consumed nothing yet: the one generation that it may make is admitted and leaves nothing.
 * @param windowEntries those that a refusal by the upstream is meant to leave
 */
export async function expectUnconsumed(
  gateway: TestGateway,
  { key }: IssuedKey,
  windowEntries = 0,
): Promise<void> {
  const ask = asking(gateway);
  const before = await ask("GET", "/api/v1/credits", { key });
  const { balance, limits } = before.body.data;
  expect(before.headers.get("x-ratelimit-remaining")).toBe(String(limits.rate_limit - windowEntries));
  expect(before.headers.get("x-concurrent-active")).toBe("0");
  const made = await ask("POST", TEXT_TO_VIDEO, { key, body: BOAT });
  expect(made.body).toMatchObject({ code: 200 });
  const { data } = (await ask("GET", "/api/v1/credits", { key })).body;
  expect(data).toMatchObject({ balance: balance - 10, total_used: 10, total_requests: 1 + windowEntries });
}

/** Changes fields of a key's record, as `tollgate keys set` would. */
export async function setLimits(
  gateway: TestGateway,
  issued: IssuedKey,
  fields: Record<string, number | string>,
) {
  const { partition } = await readAccount(oneNode(gateway.redis), issued.accountId);
  await setKeyFields(gateway.redis, keyRef(issued.keyId, issued.accountId, partition).names.key, fields);
}

/** Suspends or closes an account, or makes it active again, behind the gateway's back. */
export async function setStatus(
  { redis }: Pick<TestGateway, "redis">,
  { accountId }: Pick<IssuedKey, "accountId">,
  status: AccountStatus,
): Promise<void> {
  await patchAccount(oneNode(redis), accountId, { status }, cliActor("test"));
}

/** Revokes a key behind the gateway's back. */
export const revoke = (gateway: TestGateway, issued: IssuedKey): Promise<void> =>
  setLimits(gateway, issued, { revoked_at: Date.now() });

let references = 0;
export const recharge = (gateway: TestGateway, { accountId }: IssuedKey, credits: number) =>
  grantCredits(oneNode(gateway.redis), accountId, credits, `test:${references++}`, cliActor());

/** A client that says exactly what it is told to, over one bare connection. */
export interface RawClient {
  /** Each character is one byte. */
  write(text: string): void;
  /** The next complete final answer; interim ones (1xx) are kept aside. */
  answer(): Promise<Reply>;
  /** Resolves when the server has ended or broken the connection. */
  closed(): Promise<void>;
  readonly interim: number[];
  readonly socket: Socket;
  end(): void;
}

export async function rawClient(url: string): Promise<RawClient> {
  const { hostname, port } = new URL(url);
  const socket = connect(Number(port), hostname);
  let received: Buffer = Buffer.alloc(0);
  let over = false;
  const interim: number[] = [];
  socket.on("data", (chunk: Buffer) => {
    received = Buffer.concat([received, chunk]);
  });
  socket.on("error", () => undefined);
  socket.on("end", () => {
    over = true;
  });
  socket.on("close", () => {
    over = true;
  });
  await new Promise((resolve) => socket.once("connect", resolve));

  /** Takes one whole answer off the front of what was received. */
  function take(): Reply | undefined {
    for (;;) {
      const end = received.indexOf("\r\n\r\n");
      if (end < 0) return undefined;
      const [first = "", ...lines] = received.subarray(0, end).toString("latin1").split("\r\n");
      const headers = new Headers(
        lines.map((line) => line.split(/: ?(.*)/s).slice(0, 2) as [string, string]),
      );
      const status = Number(/^HTTP\/1\.1 (\d{3}) /.exec(first)?.[1]);
      const bodyBytes = Number(headers.get("content-length") ?? 0);
      if (received.length < end + 4 + bodyBytes) return undefined;
      const text = received.subarray(end + 4, end + 4 + bodyBytes).toString();
      received = received.subarray(end + 4 + bodyBytes);
      if (status >= 200) return { status, headers, body: text === "" ? undefined : JSON.parse(text) };
      interim.push(status);
    }
  }

  return {
    interim,
    socket,
    write: (text) => void socket.write(text, "latin1"),
    async answer() {
      let reply: Reply | undefined;
      await until(() => {
        reply = take();
        return reply !== undefined || over;
      }, "an answer");
      if (!reply)
        throw new Error(`the connection ended without an answer; left: ${received.toString("latin1")}`);
      return conforming(reply);
    },
    closed: () => until(() => over, "the end of the connection"),
    end: () => void socket.destroy(),
  };
}

/** A head with its lines, each ended as it should be. */
export const head = (...lines: string[]): string => `${lines.join("\r\n")}\r\n\r\n`;

/** A whole request with a JSON body. */
export function rawGeneration(key: string, body: unknown = BOAT, ...more: string[]): string {
  const text = JSON.stringify(body);
  const lines = [`POST ${TEXT_TO_VIDEO} HTTP/1.1`, "Host: a", `Authorization: Bearer ${key}`, ...more];
  return (
    head(...lines, "Content-Type: application/json", `Content-Length: ${Buffer.byteLength(text)}`) + text
  );
}
