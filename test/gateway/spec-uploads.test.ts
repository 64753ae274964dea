import { createHash } from "node:crypto";
import { Readable } from "node:stream";
import { afterAll, beforeAll, describe, expect, onTestFinished, test } from "vitest";
import {
  expectStatus,
  givenGateway,
  limitsOf,
  type Reply,
  type TestGateway,
  until,
} from "../support/gateway.ts";
import { IMAGE_TYPES, imageOfSize, tinyImage } from "../support/images.ts";
import {
  asking,
  conforming,
  consumption,
  expectUnconsumed,
  givenTightKey,
  head,
  rawClient,
  rawGeneration,
} from "./spec-stage.ts";

let gateway: TestGateway;
let ask: ReturnType<typeof asking>;
/** Meets the upstream that does not answer; the other one waits as long as it takes. */
let impatient: TestGateway;
beforeAll(async () => {
  gateway = await givenGateway();
  impatient = await givenGateway({
    generator: gateway.generator,
    config: { upstream: { headersTimeoutMs: 1000, totalTimeoutMs: 1500 } },
  });
  ask = asking(gateway);
});
afterAll(async () => {
  await impatient.stop();
  await gateway.stop();
});

const MAX = 10_485_760;
const sha256 = (bytes: Buffer): string => createHash("sha256").update(bytes).digest("hex");
const formOf = (bytes: Buffer, type: string, field = "file"): FormData => {
  const form = new FormData();
  form.set(field, new Blob([new Uint8Array(bytes)], { type }), "cat.png");
  return form;
};

async function upload(
  key: string,
  body: FormData | Readable | Buffer,
  headers: Record<string, string> = {},
  to = gateway,
): Promise<Reply> {
  const init = {
    method: "POST",
    headers: { authorization: `Bearer ${key}`, ...headers },
    body,
    duplex: "half",
  };
  const response = await fetch(`${to.url}/api/v1/upload`, init as RequestInit);
  return conforming({ status: response.status, headers: response.headers, body: await response.json() });
}

/** The form as bytes, for sending in other ways. */
async function formBytes(form: FormData): Promise<{ bytes: Buffer; type: string }> {
  const response = new Response(form);
  return { bytes: Buffer.from(await response.arrayBuffer()), type: response.headers.get("content-type")! };
}

/** Uploads that reached the upstream whole. */
const arrived = () =>
  gateway.generator.requests.filter((request) => request.path === "/api/v1/upload" && request.complete);

test.each(IMAGE_TYPES)(
  "a real %s goes through byte by byte, costs nothing and counts toward nothing",
  async (type) => {
    const issued = await givenTightKey(gateway);
    const reply = await upload(issued.key, formOf(tinyImage(type), type));
    expectStatus(reply, 200);
    expect(limitsOf(reply)).toMatchObject({ limit: 1, remaining: 1, maxConcurrent: 1, active: 0 });
    const { url, expires_at } = reply.body.data;
    expect(Math.abs(Date.parse(expires_at) - Date.now() - 300_000)).toBeLessThan(10_000);
    const { file, headers } = arrived().at(-1)!;
    expect(file).toMatchObject({ type, sha256: sha256(tinyImage(type)) });
    expect(headers.authorization).toBe("Bearer upstream-secret");
    expect(JSON.stringify(headers)).not.toContain(issued.key);
    await expectUnconsumed(gateway, issued);

    // The URL is a valid imageUrl of both tiers.
    const { key } = await gateway.givenKey();
    for (const tier of ["gen2", "gen2-pro"])
      expect(
        (await ask("POST", `/api/v1/${tier}/image-to-video`, { key, body: { imageUrl: url } })).status,
      ).toBe(200);
  },
);

describe("size", () => {
  test.each(["with Content-Length", "chunked"])(
    "10,485,760 bytes pass and one more is 413, %s",
    async (how) => {
      const { key } = await gateway.givenKey();
      const send = async (size: number): Promise<Reply> => {
        const { bytes, type } = await formBytes(formOf(imageOfSize("image/jpeg", size), "image/jpeg"));
        const body =
          how === "chunked"
            ? Readable.from([bytes.subarray(0, 5_000_000), bytes.subarray(5_000_000)])
            : bytes;
        return upload(key, body, { "content-type": type });
      };
      expectStatus(await send(MAX), 200);
      expect(arrived().at(-1)!.file).toMatchObject({
        size: MAX,
        sha256: sha256(imageOfSize("image/jpeg", MAX)),
      });
      const arrivedBefore = arrived().length;
      const refused = await send(MAX + 1);
      expectStatus(refused, 413);
      expect(refused.body.error).toContain("10485760");
      expect(arrived().length).toBe(arrivedBefore);
    },
  );

  test("far too large by Content-Length: 413 at once, the client reads it while sending, the connection serves on", async () => {
    const { key } = await gateway.givenKey();
    const raw = await rawClient(gateway.url);
    onTestFinished(() => raw.end());
    const bytes = 12_000_000;
    const type = "Content-Type: multipart/form-data; boundary=b";
    raw.write(
      head(
        "POST /api/v1/upload HTTP/1.1",
        "Host: a",
        `Authorization: Bearer ${key}`,
        type,
        `Content-Length: ${bytes}`,
      ),
    );
    const reply = await raw.answer();
    expectStatus(reply, 413);
    expect(limitsOf(reply)).toMatchObject({ limit: 1000, remaining: 1000 });
    raw.write("x".repeat(bytes));
    raw.write(rawGeneration(key));
    expectStatus(await raw.answer(), 200);
  });
});

describe("what is no upload", () => {
  const PNG = tinyImage("image/png");
  const part = (disposition: string, body: Buffer | string, type = "image/png") =>
    Buffer.concat([
      Buffer.from(`--b\r\nContent-Disposition: form-data; ${disposition}\r\nContent-Type: ${type}\r\n\r\n`),
      Buffer.from(body),
      Buffer.from("\r\n"),
    ]);
  const FILE = 'name="file"; filename="a.png"';
  const END = Buffer.from("--b--\r\n");
  const FORM = "multipart/form-data; boundary=b";
  const cases: [what: string, status: number, body: Buffer, headers: Record<string, string>][] = [
    ["text", 415, Buffer.concat([part(FILE, "hello, this is text"), END]), { "content-type": FORM }],
    [
      "SVG",
      415,
      Buffer.concat([part(FILE, "<svg xmlns='http://www.w3.org/2000/svg'/>", "image/svg+xml"), END]),
      { "content-type": FORM },
    ],
    [
      "a PNG that is declared as GIF",
      415,
      Buffer.concat([part(FILE, PNG, "image/gif"), END]),
      { "content-type": FORM },
    ],
    [
      "a PNG that is declared as text",
      415,
      Buffer.concat([part(FILE, PNG, "text/plain"), END]),
      { "content-type": FORM },
    ],
    ["two parts", 400, Buffer.concat([part(FILE, PNG), part(FILE, PNG), END]), { "content-type": FORM }],
    [
      "a field beside the file",
      400,
      Buffer.concat([part(FILE, PNG), part('name="note"', "x", "text/plain"), END]),
      { "content-type": FORM },
    ],
    [
      "another field's name",
      400,
      Buffer.concat([part('name="image"; filename="a.png"', PNG), END]),
      { "content-type": FORM },
    ],
    ["no file", 400, END, { "content-type": FORM }],
    ["an empty file", 400, Buffer.concat([part(FILE, ""), END]), { "content-type": FORM }],
    ["a form that breaks off", 400, part(FILE, PNG), { "content-type": FORM }],
    ["no boundary", 400, Buffer.concat([part(FILE, PNG), END]), { "content-type": "multipart/form-data" }],
    [
      "Content-Encoding: gzip",
      415,
      Buffer.concat([part(FILE, PNG), END]),
      { "content-type": FORM, "content-encoding": "gzip" },
    ],
    ["JSON", 415, Buffer.from("{}"), { "content-type": "application/json" }],
    ["the image itself as body", 415, PNG, { "content-type": "image/png" }],
    [
      "another multipart",
      415,
      Buffer.concat([part(FILE, PNG), END]),
      { "content-type": "multipart/mixed; boundary=b" },
    ],
  ];

  test.each(cases)(
    "%s: %d, nothing reaches the upstream whole, nothing is consumed",
    async (_, status, body, headers) => {
      const issued = await givenTightKey(gateway);
      const arrivedBefore = arrived().length;
      const reply = await upload(issued.key, body, headers);
      expectStatus(reply, status);
      expect(reply.body.code).toBe(status);
      expect(limitsOf(reply)).toMatchObject({ limit: 1, remaining: 1, maxConcurrent: 1, active: 0 });
      expect(arrived().length).toBe(arrivedBefore);
      await expectUnconsumed(gateway, issued);
    },
  );

  test("a bad key's upload is 401 before its form is looked at", async () => {
    const reply = await upload("sk_unknown", Buffer.from("x"), { "content-type": "text/plain" });
    expectStatus(reply, 401);
  });
});

describe("uploads that the upstream does not take", () => {
  type Changes = Parameters<TestGateway["generator"]["behave"]>[0];
  const cases: [what: string, changes: Changes, status: number, code: number][] = [
    ["400", { uploadStatus: 400 }, 400, 400],
    ["413", { uploadStatus: 413 }, 413, 413],
    ["422", { uploadStatus: 422 }, 422, 422],
    ["401", { uploadStatus: 401 }, 502, 502],
    ["402", { uploadStatus: 402 }, 502, 502],
    ["403", { uploadStatus: 403 }, 502, 502],
    ["404", { uploadStatus: 404 }, 502, 502],
    ["429", { uploadStatus: 429, uploadRetryAfterSeconds: 99 }, 429, 2004],
    ["code 2001 in a 400", { uploadStatus: 400, uploadCode: 2001, uploadRetryAfterSeconds: 99 }, 429, 2004],
    ["code 200 in a 400", { uploadStatus: 400, uploadCode: 200 }, 400, 400],
    ["500", { uploadStatus: 500 }, 502, 502],
    ["503", { uploadStatus: 503 }, 502, 502],
    ["code 422 in a 200", { uploadCode: 422 }, 422, 422],
    ["code 401 in a 200", { uploadCode: 401 }, 502, 502],
    ["code 1001 in a 200", { uploadCode: 1001 }, 502, 1001],
    ["a reset", { uploadFault: "reset" }, 502, 502],
    ["half an answer", { uploadFault: "truncate" }, 502, 502],
    ["garbage", { uploadFault: "garbage" }, 502, 502],
    ["silence", { uploadFault: "hang" }, 504, 504],
  ];

  test.each(cases)("%s", async (_, changes, status, code) => {
    const issued = await gateway.givenKey();
    gateway.generator.behave(changes);
    onTestFinished(() => gateway.generator.reset());
    const form = formOf(tinyImage("image/png"), "image/png");
    const reply = await upload(issued.key, form, {}, status === 504 ? impatient : gateway);
    expect(reply).toMatchObject({ status, body: { code } });
    if (code === 2004) expect(reply.body.retryAfter).toBe(30);
    expect(await consumption(gateway, issued)).toMatchObject({
      balance: 1000,
      remaining: 1000,
      totalRequests: 0,
    });
  });
});

describe("uploads under way", () => {
  /** Begins an upload and leaves it unfinished. */
  async function begun(of: TestGateway, key: string) {
    const { bytes, type } = await formBytes(formOf(tinyImage("image/png"), "image/png"));
    const body = new Readable({ read: () => undefined });
    body.push(bytes.subarray(0, -30));
    const answer = fetch(`${of.url}/api/v1/upload`, {
      method: "POST",
      headers: { authorization: `Bearer ${key}`, "content-type": type },
      body,
      duplex: "half",
    } as RequestInit);
    return {
      status: answer.then(({ status }) => status),
      push: (bytes: string) => void body.push(bytes),
      async finish(): Promise<number> {
        body.push(bytes.subarray(-30));
        body.push(null);
        return (await answer).status;
      },
    };
  }
  const underWay = async (of: TestGateway): Promise<number> =>
    Number((await of.metric("tollgate_uploads_in_flight"))[0]?.split(" ")[1]);
  const whole = async (of: TestGateway, key: string): Promise<Reply> => {
    const response = await fetch(`${of.url}/api/v1/upload`, {
      method: "POST",
      headers: { authorization: `Bearer ${key}` },
      body: formOf(tinyImage("image/png"), "image/png"),
    });
    return conforming({ status: response.status, headers: response.headers, body: await response.json() });
  };

  // Guarantee: whoever drips bytes holds a place for as long as the grace lasts, and no longer.
  test("slower than server.upload_min_bytes_per_second are 408, however steadily they come", async () => {
    const config = { server: { uploadIdleTimeoutMs: 1500, uploadMinBytesPerSecond: 10_000 } };
    const strict = await givenGateway({ config });
    onTestFinished(() => strict.stop());
    const { key } = await strict.givenKey();
    const slow = await begun(strict, key);
    const drip = setInterval(() => slow.push("x"), 20);
    onTestFinished(() => clearInterval(drip));
    expect(await slow.status).toBe(408);
    expect(strict.logs.some((line) => line.includes("the upload is too slow"))).toBe(true);
  });

  // Guarantee: one key's uploads never keep another key's from being served.
  test("are bounded per key: the next is 429, another key's passes, and the place comes back", async () => {
    const few = await givenGateway({ config: { server: { uploadsPerKey: 2 } } });
    onTestFinished(() => few.stop());
    const { key } = await few.givenKey();
    const other = await few.givenKey();
    const two = [await begun(few, key), await begun(few, key)];
    await until(async () => (await underWay(few)) === 2, "two uploads to be under way");
    const refused = await whole(few, key);
    expect(refused).toMatchObject({ status: 429, body: { code: 2007, retryAfter: 1 } });
    const line = () => few.logs.find((one) => one.includes(String(refused.headers.get("x-request-id"))));
    await until(async () => line() !== undefined, "the line of the refused upload");
    expect(JSON.parse(line() ?? "{}")).toMatchObject({ outcome: "slow_down", limit: 2, used: 2 });
    expectStatus(await whole(few, other.key), 200);
    expect(await Promise.all(two.map((upload) => upload.finish()))).toEqual([200, 200]);
    expectStatus(await whole(few, key), 200);
  });

  test("are bounded in total: the next is 503 overloaded, whoever sends it", async () => {
    const few = await givenGateway({
      config: { server: { uploadsPerKey: 1 }, upstream: { uploadConnections: 1 } },
    });
    onTestFinished(() => few.stop());
    const { key } = await few.givenKey();
    const other = await few.givenKey();
    const one = await begun(few, key);
    await until(async () => (await underWay(few)) === 1, "the upload to be under way");
    expect(await whole(few, other.key)).toMatchObject({ status: 503, body: { code: 503, retryAfter: 1 } });
    expect(await one.finish()).toBe(200);
    expectStatus(await whole(few, other.key), 200);
  });
});
