import { type Static, Type } from "typebox";
import { byLimit, SHADOW_LIMITS, TIER_LIMITS, type TierLimits, type Tiers } from "../../domain/limits.ts";
import { capitalized } from "../../domain/operator-texts.ts";
import { ruled, section } from "../setting-types.ts";

const tier = Type.Object(
  {
    ...byLimit(TIER_LIMITS, ({ unit, max }) =>
      Type.Integer({ minimum: 1, maximum: max, description: `${capitalized(unit)}.` }),
    ),
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
      standard: byLimit(TIER_LIMITS, ({ tiers }) => tiers.standard),
      enterprise: byLimit(TIER_LIMITS, ({ tiers }) => tiers.enterprise),
    },
    "x-keys": "is not a tier name: at most 32 of a-z, 0-9, _ and -, beginning with a letter",
  },
);

/** No prototype: a key may name the tier `constructor`. */
export function toTiers(tiers: Readonly<Record<string, Static<typeof tier>>>): Tiers {
  const limits: Record<string, TierLimits> = Object.create(null);
  for (const [name, { shadow, deprecated, ...own }] of Object.entries(tiers)) {
    limits[name] = {
      ...own,
      ...(shadow?.length ? { shadow } : {}),
      ...(deprecated ? { deprecated } : {}),
    };
  }
  return limits;
}

const NAME = /^[A-Za-z0-9_.-]{1,64}$/;

const nameRule = (name: string): string | undefined =>
  NAME.test(name) ? undefined : "must be a name of 1 to 64 characters of A-Z, a-z, 0-9, _, . and -";

export const accountsSchema = section("Accounts.", {
  indexed_metadata: Type.Array(ruled(Type.String(), nameRule), {
    default: [],
    maxItems: 4,
    uniqueItems: true,
    description: "Names in the metadata of accounts by whose values GET /accounts finds them.",
  }),
});
