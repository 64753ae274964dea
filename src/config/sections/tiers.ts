import { type Static, Type } from "typebox";
import { SHADOW_LIMITS, type TierLimits, type Tiers } from "../../domain/limits.ts";

const tier = Type.Object(
  {
    rate_limit: Type.Integer({
      minimum: 1,
      maximum: 100_000,
      description: "Requests per rolling 60 seconds.",
    }),
    max_concurrent: Type.Integer({ minimum: 1, maximum: 10_000, description: "Tasks at the same time." }),
    daily_limit: Type.Integer({ minimum: 1, maximum: 1_000_000_000, description: "Requests per UTC day." }),
    shadow: Type.Optional(
      Type.Array(Type.Enum([...SHADOW_LIMITS]), {
        uniqueItems: true,
        description: "Limits that are counted and reported but not enforced, to try them out.",
      }),
    ),
    deprecated: Type.Optional(
      Type.Boolean({ description: "No new key gets this tier; keys that have it keep its limits." }),
    ),
  },
  { additionalProperties: false, description: "Limits of the keys of one tier." },
);

export const tiersSchema = Type.Object(
  { standard: tier },
  {
    description:
      "Tier names and their limits. If it is given, the list must be complete; standard is required.",
    additionalProperties: false,
    maxProperties: 64,
    patternProperties: { "^(?!standard$)[a-z][a-z0-9_-]{0,31}$": tier },
    default: {
      standard: { rate_limit: 20, max_concurrent: 3, daily_limit: 500 },
      enterprise: { rate_limit: 100, max_concurrent: 10, daily_limit: 10_000 },
    },
    "x-keys": "is not a tier name: at most 32 of a-z, 0-9, _ and -, beginning with a letter",
  },
);

/** No prototype: a key may name the tier `constructor`. */
export function toTiers(tiers: Readonly<Record<string, Static<typeof tier>>>): Tiers {
  const limits: Record<string, TierLimits> = Object.create(null);
  for (const [name, { rate_limit, max_concurrent, daily_limit, shadow, deprecated }] of Object.entries(
    tiers,
  )) {
    limits[name] = {
      rateLimit: rate_limit,
      maxConcurrent: max_concurrent,
      dailyLimit: daily_limit,
      ...(shadow?.length ? { shadow } : {}),
      ...(deprecated ? { deprecated } : {}),
    };
  }
  return limits;
}
