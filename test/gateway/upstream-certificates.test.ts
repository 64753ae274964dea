import { randomUUID } from "node:crypto";
import { once } from "node:events";
import type { AddressInfo } from "node:net";
import { createServer } from "node:tls";
import { expect, onTestFinished, test } from "vitest";
import { upstreamCheck } from "../../src/checks/upstream-check.ts";
import { selfSignedCertificate } from "../../src/sandbox/generator/server.ts";
import { expectSound, readLedger } from "../support/audit.ts";
import { expectStatus, givenGateway } from "../support/gateway.ts";
import { tinyImage } from "../support/images.ts";

const TEXT_TO_VIDEO = "/api/v1/gen2/text-to-video";
type Pair = ReturnType<typeof selfSignedCertificate>;

/** An upstream on a bare TLS socket that answers what it receives with a task. */
async function givenTlsUpstream(host: string, pair: Pair) {
  const received: string[] = [];
  const server = createServer(pair, (socket) => {
    socket.on("error", () => undefined);
    socket.on("data", (bytes) => {
      received.push(String(bytes));
      const body = JSON.stringify({ code: 200, msg: "success", data: { task_id: `task_${randomUUID()}` } });
      socket.end(`HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: ${body.length}\r\n\r\n${body}`);
    });
  });
  server.listen(0, host);
  await once(server, "listening");
  onTestFinished(() => void server.close());
  const url = `https://${host}:${(server.address() as AddressInfo).port}`;
  return { url, received, renew: (next: Pair) => server.setSecureContext(next) };
}

async function upload(url: string, key: string): Promise<number> {
  const form = new FormData();
  form.append("file", new Blob([new Uint8Array(tinyImage("image/png"))], { type: "image/png" }), "a.png");
  const headers = { authorization: `Bearer ${key}` };
  return (await fetch(`${url}/api/v1/upload`, { method: "POST", headers, body: form })).status;
}

const EXPIRED = selfSignedCertificate(-0.5);
const RENEWED = selfSignedCertificate();

// Guarantee: an upstream that proves nothing is sent nothing, which costs nobody, and log and doctor say what is wrong with it.
test.each([
  ["has expired", "127.0.0.1", /"detail":"CERT_HAS_EXPIRED: /, "has expired"],
  ["has another name", "127.0.0.2", /"detail":"ERR_TLS_CERT_ALTNAME_INVALID: /, "does not fit"],
])("while the upstream's certificate %s", async (_, host, logged, found) => {
  const isExpired = host === "127.0.0.1";
  const upstream = await givenTlsUpstream(host, isExpired ? EXPIRED : RENEWED);
  const gateway = await givenGateway({
    upstreamUrl: upstream.url,
    config: { upstream: { tlsCa: EXPIRED.cert + RENEWED.cert } },
  });
  onTestFinished(gateway.stop);
  const key = await gateway.givenKey();
  const generate = () => gateway.request("POST", TEXT_TO_VIDEO, { key: key.key, body: { prompt: "x" } });
  expectStatus(await generate(), 502);
  expect(await upload(gateway.url, key.key)).toBe(502);
  const ledger = await readLedger(gateway.redis, key);
  expectSound(ledger);
  expect(ledger).toMatchObject({ balance: 1000, held: 0, totalUsed: 0, slots: [] });
  expect(upstream.received).toEqual([]);
  expect(gateway.logs.join("")).toMatch(logged);
  const check = await upstreamCheck(gateway.live.config().upstream, false);
  expect(check).toMatchObject({ status: "fail", message: expect.stringContaining(found) });
  if (!isExpired) return;
  upstream.renew(RENEWED);
  expectStatus(await generate(), 200);
});
