import { Type } from "typebox";
import { byLimit, TIER_LIMITS } from "../../domain/limits.ts";
import { closed, credits, nullable, text } from "./field-schemas.ts";

export const Package = Type.Object({ package: text, credits }, { ...closed, title: "Package" });

export const Price = Type.Object(
  {
    endpoint: text,
    price: Type.Unsafe<number | object>({
      description: "Credits, or credits by quality and seconds, as in the price file.",
    }),
  },
  { ...closed, title: "Price" },
);

export const Tier = Type.Object(
  {
    tier: text,
    ...byLimit(TIER_LIMITS, () => Type.Integer()),
    shadow: Type.Array(Type.String(), { description: "Limits that count and refuse nothing." }),
    deprecated: Type.Boolean({ description: "No new key gets it." }),
    keys: nullable<number>(
      Type.Integer({
        description:
          "How many keys of all accounts use it; null while that is not known, and for a token that may use some accounts only.",
      }),
    ),
  },
  { ...closed, title: "Tier" },
);

export const Tiers = Type.Object(
  {
    data: Type.Array(Tier),
    next_cursor: nullable<string>(Type.String({ description: "Always null." })),
    missing: nullable<{ tier: string; keys: number }[]>(
      Type.Array(Type.Object({ tier: text, keys: Type.Integer() }, closed), {
        description:
          "Tiers that keys use and that the configuration does not name, those with the most keys first, 100 at most. Such keys have the " +
          "limits of standard. null while that is not known, and for a token that may use some accounts only.",
      }),
    ),
  },
  { ...closed, title: "Tiers" },
);
