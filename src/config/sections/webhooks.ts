import { type Static, Type } from "typebox";
import { networkRule, optionalUrl, optionalUrlRule } from "../setting-rules.ts";
import { duration, integer, ruled, section, text, toProgram } from "../setting-types.ts";

const RETRIES = ["5s", "5m", "30m", "2h", "5h", "10h", "14h", "20h", "24h"];

export const webhooksSchema = section(
  "Messages to customers, which are sent if WEBHOOK_SECRET_KEY is set in the environment.",
  {
    public_url: text(
      "",
      optionalUrlRule,
      "Where the upstream reaches the public port of the gateways, such as https://api.example.com; with it, callBackUrl is relayed.",
    ),
    relay: Type.Enum(["requested", "all"], {
      default: "requested",
      description:
        "Which generations the upstream calls back about, with public_url: requested, those with a callBackUrl; all, those of every endpoint whose upstream takes an address.",
    }),
    callbacks: Type.Enum(["storyboard", "all"], {
      default: "storyboard",
      description: "Which generation endpoints take callBackUrl from customers, with public_url.",
    }),
    any_origin: Type.Boolean({
      default: false,
      description:
        "With callbacks: all, callBackUrl may have any public origin; else one of the account's endpoints.",
    }),
    proxy_url: text(
      "",
      optionalUrlRule,
      "HTTP proxy that sends the messages, such as http://egress.internal:3128. It resolves the names, and must refuse inner addresses.",
    ),
    allow_networks: Type.Array(ruled(Type.String(), networkRule), {
      default: [],
      maxItems: 64,
      description:
        "Inner networks, as CIDR ranges, that endpoints may be in. Plain http is taken there, and any port.",
    }),
    allow_ports: Type.Array(Type.Integer({ minimum: 1, maximum: 65_535 }), {
      default: [],
      maxItems: 64,
      uniqueItems: true,
      description: "Ports that endpoints may use besides 443.",
    }),
    timeout: duration("15s", "10ms", "15s", "How long one try may take in all: name, connection and answer."),
    retries: Type.Array(duration("5s", "0s", "7d", "Delay after a failed try."), {
      default: RETRIES,
      maxItems: 32,
      description:
        "Delay after each failed try; up to a tenth is added at random. After the last one the delivery has failed.",
    }),
    disable_after: duration(
      "5d",
      "1s",
      "30d",
      "An endpoint that has only failed for this long, in ten tries or more, is disabled.",
    ),
    keep: duration("7d", "1s", "30d", "How long events and deliveries are kept."),
    endpoints_per_account: integer(10, 1, 100, "Endpoints of one account, at most."),
    in_flight: integer(
      256,
      1,
      10_000,
      "First tries that one process makes at a time; retries have a quarter as many beside them, and as many tries may take over a second.",
    ),
    in_flight_per_endpoint: integer(4, 1, 100, "Messages that one endpoint gets at a time."),
  },
);

export const toWebhooksConfig = (
  webhooks: Static<typeof webhooksSchema>,
  secrets: { key: string | undefined; previousKey: string | undefined },
) => ({
  ...toProgram(webhooksSchema, webhooks),
  /** Without it nothing is registered or sent. */
  secretKey: secrets.key,
  previousSecretKey: secrets.previousKey,
  publicUrl: optionalUrl(webhooks.public_url),
  proxyUrl: optionalUrl(webhooks.proxy_url),
});
