import { byLimit, CAPS, TIER_LIMITS } from "../../domain/limits.ts";

const [FIRST, SECOND] = TIER_LIMITS;

export const BODY_EXAMPLES: Readonly<Record<string, object>> = {
  createAccount: {
    account_id: "acme",
    label: "Acme Films",
    metadata: { crm_id: "4711" },
    limits: { [FIRST!.name]: FIRST!.example.limit },
  },
  changeAccount: { status: "suspended", limits: { [FIRST!.name]: FIRST!.example.limit } },
  createKey: {
    tier: "standard",
    label: "backend",
    limits: { [SECOND!.name]: SECOND!.example.limit },
    ...byLimit(CAPS, ({ example }) => example.limit),
  },
  importKey: { key: "sk_live_4f9aB7c2e8d1", label: "taken over", allowed_addresses: ["203.0.113.0/24"] },
  lookUpKey: { key: "sk_live_4f9aB7c2e8d1" },
  changeKey: {
    ...byLimit(CAPS, () => null),
    allowed_endpoints: ["gen2/text-to-video"],
    expires_at: "2099-12-31T00:00:00Z",
  },
  rotateKey: { overlap: "24h" },
  setMaintenance: { on: false },
  createToken: { label: "shop", scopes: ["accounts:write", "keys:write", "credits:write"] },
  correctCharges: {
    from: "2026-11-01T10:00:00Z",
    to: "2026-11-01T10:30:00Z",
    prices: [{ endpoint: "gen2/text-to-video", charged: 100, correct: 10 }],
    reference: "wrong-prices-1-November",
    reason: "wrong price",
  },
  quotePrice: { endpoint: "gen2/text-to-video", body: { prompt: "A boat on a lake" }, account_id: "acme" },
  reverseGrant: { of: "order-1001", reference: "ticket-4712", reason: "money back" },
  grantCredits: { package: "premium", reference: "order-1001" },
  adjustCredits: { amount: -200, reason: "granted twice", reference: "ticket-17" },
  refundTask: { reason: "black frames", reference: "ticket-18" },
  createWebhook: { url: "https://shop.example.com/webhooks", events: ["task.completed", "task.failed"] },
  changeWebhook: { status: "disabled" },
  rotateWebhookSecret: { overlap: "24h" },
};
