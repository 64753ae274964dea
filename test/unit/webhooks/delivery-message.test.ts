import { randomBytes } from "node:crypto";
import { Webhook } from "standardwebhooks";
import { expect, test } from "vitest";
import { createMessages, newSecret } from "../../../src/webhooks/delivery-message.ts";
import { openSecretBox, SealedSecretError } from "../../../src/webhooks/sealed-secrets.ts";

const boxOf = (secretKey: string) => openSecretBox({ secretKey, previousSecretKey: undefined })!;
const [lost, present] = [randomBytes(32), randomBytes(32)].map((bytes) => boxOf(bytes.toString("base64")));

const delivery = (secrets: string[]) => ({
  ...{ partition: 0, endpointId: "we_1", eventId: "evt_1", lane: "first" as const, lease: 1, tries: 0 },
  event: { type: "task.completed", atMs: 0, accountId: "acme", data: "{}" },
  ...{ url: "https://example.com/", secrets, dueAt: "0" },
});

// With its key lost, the page tells operators to rotate each secret. Nothing was sent for the next 24 hours then.
test("the present secret signs alone if the one before the rotation cannot be opened", () => {
  const secret = newSecret();
  const secrets = [present!.seal(secret), lost!.seal(newSecret())];
  const { body, headers } = createMessages(present!)(delivery(secrets), Date.now());
  expect(headers["webhook-signature"]).toMatch(/^v1,\S+$/);
  new Webhook(secret).verify(body, headers);
});

test("a message whose present secret cannot be opened is not sent with another one", () => {
  const secrets = [lost!.seal(newSecret()), present!.seal(newSecret())];
  expect(() => createMessages(present!)(delivery(secrets), Date.now())).toThrow(SealedSecretError);
});

test("an account without endpoints gets its message unsigned, at the second of its try", () => {
  const { headers } = createMessages(present!)(delivery([]), 1_999);
  expect(headers).toEqual({ "webhook-id": "evt_1", "webhook-timestamp": "1" });
});
