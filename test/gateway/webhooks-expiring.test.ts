import { expect, test } from "vitest";
import { until } from "../support/gateway.ts";
import { givenEndpoint, givenWebhookStage, ownRedisAndReceiver } from "../support/webhook-stage.ts";

const DAY_MS = 86_400_000;

const own = ownRedisAndReceiver();

// Guarantee: a running gateway finds the keys that end soon by itself.
test("an account is told of a key that ends within a week, and of none that ends later", async () => {
  const stage = await givenWebhookStage({ redisUrl: own.redis.url });
  try {
    const endpoint = await givenEndpoint(stage, own.receiver.url, ["key.expiring"]);
    const givenKey = async (inDays: number, label: string) => {
      const endsAt = new Date(Date.now() + inDays * DAY_MS).toISOString();
      const { key_id: keyId } = await stage.givenKey(endpoint.accountId, { expires_at: endsAt, label });
      return { keyId, endsAt };
    };
    await givenKey(8, "later");
    const { keyId, endsAt } = await givenKey(6, "soon");
    await until(() => own.receiver.received.length > 0, "the message");
    const [message] = own.receiver.received;
    expect(JSON.parse(message!.body)).toMatchObject({
      type: "key.expiring",
      data: { key_id: keyId, label: "soon", expires_at: endsAt },
    });
    expect(await endpoint.ended(own.receiver.ids()[0]!)).toMatchObject({ status: "delivered", attempts: 1 });
    expect(own.receiver.received).toHaveLength(1);
  } finally {
    await stage.stop();
  }
});
