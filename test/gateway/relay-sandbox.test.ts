import { once } from "node:events";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { expect, onTestFinished, test } from "vitest";
import { consumed, expectSound, readLedger } from "../support/audit.ts";
import { expectStatus, until } from "../support/gateway.ts";
import { STORYBOARD } from "../support/relay-stage.ts";
import { givenEndpoint, givenWebhookStage, ownRedisAndReceiver } from "../support/webhook-stage.ts";

// Guarantee: with the relay on, a storyboard ends with the sandbox's own callback, and nobody polls. Its sweeper sleeps.

const own = ownRedisAndReceiver();
const WITHIN_MS = 1000;

/** The public address of a gateway, and when callbacks came to it. */
async function givenPublicAddress() {
  const arrivedMs: number[] = [];
  let gatewayUrl = "";
  const server = createServer(async (request, response) => {
    arrivedMs.push(performance.now());
    const body = Buffer.concat(await request.toArray());
    const headers = { "content-type": "application/json" };
    const { status } = await fetch(`${gatewayUrl}${request.url}`, { method: "POST", headers, body });
    response.writeHead(status).end();
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  onTestFinished(() => void server.close());
  const { port } = server.address() as AddressInfo;
  const leadTo = (url: string) => {
    gatewayUrl = url;
  };
  return { url: `http://127.0.0.1:${port}`, arrivedMs, leadTo };
}

test.each([
  ["", 200],
  [" truncate", 502],
])(
  "a storyboard of the sandbox%s ends, charged and told, within a second of its callback",
  async (fault, status) => {
    const address = await givenPublicAddress();
    const config = { webhooks: { publicUrl: address.url } };
    const stage = await givenWebhookStage({ redisUrl: own.redis.url, config });
    onTestFinished(() => stage.stop());
    const { gateway } = stage;
    address.leadTo(gateway.url);
    const { accountId } = await givenEndpoint(stage, own.receiver.url, ["task.completed"]);
    const { key_id: keyId, key } = await stage.givenKey(accountId);
    const shots = [{ Scene: `A paper boat [sandbox: duration=2s${fault}]`, duration: 10 }];
    const callBackUrl = own.receiver.url.replace("/hook", "/called-back");
    const reply = await gateway.request("POST", STORYBOARD, {
      key,
      body: { nFrames: "10", shots, callBackUrl },
    });
    expectStatus(reply, status);

    const ledger = () => readLedger(own.redis.client, { accountId, keyId });
    expect((await ledger()).slots).toHaveLength(1);
    await until(() => address.arrivedMs.length === 1, "the callback");
    await until(async () => (await ledger()).slots.length === 0, "the slot to be free");
    expect(performance.now() - (address.arrivedMs[0] ?? 0)).toBeLessThan(WITHIN_MS);
    expect(consumed(await ledger())).toHaveLength(1);
    expectSound(await ledger());

    await until(() => own.receiver.received.length === 2, "the endpoint and the address to be told");
    const told = own.receiver.received.map(({ url, body }) => [url, JSON.parse(body).data.status]);
    expect(told.toSorted()).toEqual([
      ["/called-back", "completed"],
      ["/hook", "completed"],
    ]);
  },
);
