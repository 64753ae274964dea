import OpenAI from "openai";
import { Webhook as StandardWebhook, Webhook } from "standardwebhooks";
import { Webhook as SvixWebhook } from "svix";
import { describe, expect, test } from "vitest";
import { newSecret, signHeaders } from "../../../src/webhooks/delivery-message.ts";

/** How customers verify, each with a library of theirs. */
const RECEIVERS: Record<string, (secret: string, body: string, headers: Record<string, string>) => unknown> =
  {
    standardwebhooks: (secret, body, headers) => new StandardWebhook(secret).verify(body, headers),
    // It leaves reading the body to the receiver.
    svix(secret, body, headers) {
      new SvixWebhook(secret).verify(body, headers);
      return JSON.parse(body);
    },
    openai: (secret, body, headers) =>
      new OpenAI({ apiKey: "unused" }).webhooks.unwrap(body, headers, secret),
  };
const body = JSON.stringify({ type: "task.completed", data: { prompt: "Ein Fuß im Schnee, \u{1f9ca}" } });
const nowS = (): number => Math.floor(Date.now() / 1000);
const id = "msg_2KWPBgLlAfxdpx2AI54pPJ85f4W";

describe.each(Object.entries(RECEIVERS))("the library %s", (_, verify) => {
  const accepted = async (
    secret: string,
    text: string,
    headers: Record<string, string>,
  ): Promise<boolean> => {
    try {
      await verify(secret, text, headers);
      return true;
    } catch {
      return false;
    }
  };

  test("accepts what is signed, and reads it", async () => {
    const secret = newSecret();
    const headers = { ...signHeaders({ id, timestampS: nowS(), body, signers: [new Webhook(secret)] }) };
    expect(await verify(secret, body, headers)).toEqual(JSON.parse(body));
  });

  test("accepts either secret after a rotation, and no third one", async () => {
    const secrets = [newSecret(), newSecret()];
    const headers = {
      ...signHeaders({ id, timestampS: nowS(), body, signers: secrets.map((one) => new Webhook(one)) }),
    };
    for (const secret of secrets) expect(await accepted(secret, body, headers)).toBe(true);
    expect(await accepted(newSecret(), body, headers)).toBe(false);
  });

  test("refuses another body, another id, another time, and a message of yesterday", async () => {
    const secret = newSecret();
    const sign = (timestampS: number) => ({
      ...signHeaders({ id, timestampS, body, signers: [new Webhook(secret)] }),
    });
    const headers = sign(nowS());
    expect(await accepted(secret, `${body} `, headers)).toBe(false);
    expect(await accepted(secret, body, { ...headers, "webhook-id": "msg_2" })).toBe(false);
    expect(await accepted(secret, body, { ...headers, "webhook-timestamp": String(nowS() - 60) })).toBe(
      false,
    );
    expect(await accepted(secret, body, sign(nowS() - 86_400))).toBe(false);
    expect(await accepted(secret, body, sign(nowS() + 86_400))).toBe(false);
  });
});

test("a secret is whsec_ and 32 random bytes in base64", () => {
  const secrets = Array.from({ length: 100 }, newSecret);
  expect(new Set(secrets).size).toBe(100);
  for (const secret of secrets) {
    expect(secret).toMatch(/^whsec_[A-Za-z0-9+/]{43}=$/);
    expect(Buffer.from(secret.slice(6), "base64")).toHaveLength(32);
  }
});

// The example of the specification, so that the format does not depend on a library that signs and verifies alike.
test("the signature is the one that the specification computes", () => {
  const headers = signHeaders({
    id: "msg_p5jXN8AQM9LWM0D4loKWxJek",
    timestampS: 1_614_265_330,
    body: '{"test": 2432232314}',
    signers: [new Webhook("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")],
  });
  expect(headers).toEqual({
    "webhook-id": "msg_p5jXN8AQM9LWM0D4loKWxJek",
    "webhook-timestamp": "1614265330",
    "webhook-signature": "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=",
  });
});
