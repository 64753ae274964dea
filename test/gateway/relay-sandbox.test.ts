import { once } from "node:events";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { expect, onTestFinished, test } from "vitest";
import { consumed, expectSound, readLedger } from "../support/audit.ts";
import { expectStatus, until } from "../support/gateway.ts";
import { STORYBOARD } from "../support/relay-stage.ts";
import { givenEndpoint, givenWebhookStage, ownRedisAndReceiver } from "../support/webhook-stage.ts";

// Guarantee: with the relay on, a storyboard has ended when the sandbox's own callback is answered, and nobody polls. The sweeper sleeps.

const own = ownRedisAndReceiver();

/** The public address of a gateway, and how it answered the callbacks that came there. */
async function givenPublicAddress() {
  const answers: number[] = [];
  let gatewayUrl = "";
  const server = createServer(async (request, response) => {
    const body = Buffer.concat(await request.toArray());
    const headers = { "content-type": "application/json" };
    const { status } = await fetch(`${gatewayUrl}${request.url}`, { method: "POST", headers, body });
    answers.push(status);
    response.writeHead(status).end();
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  onTestFinished(() => void server.close());
  const { port } = server.address() as AddressInfo;
  const leadTo = (url: string) => {
    gatewayUrl = url;
  };
  return { url: `http://127.0.0.1:${port}`, answers, leadTo };
}

test.each([
  ["", 200],
  [" truncate", 502],
])(
  "a storyboard of the sandbox%s has ended, charged, as its callback is answered, and is told",
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
    await until(() => address.answers.length > 0, "the callback to be answered");
    const atAnswer = await ledger();
    expect(atAnswer.slots).toEqual([]);
    expect(consumed(atAnswer)).toHaveLength(1);
    expectSound(atAnswer);
    expect(address.answers).toEqual([200]);

    await until(() => own.receiver.received.length === 2, "the endpoint and the address to be told");
    const delivered = own.receiver.received.map(({ url, body }) => [url, JSON.parse(body).data.status]);
    expect(delivered.toSorted()).toEqual([
      ["/called-back", "completed"],
      ["/hook", "completed"],
    ]);
  },
);
