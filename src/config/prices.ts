import { type TSchema, Type } from "typebox";
import type { GenerationEndpoint } from "../domain/endpoints.ts";
import type { PriceTable } from "../domain/prices.ts";
import { ConfigError } from "./problems.ts";
import { validate } from "./validate.ts";
import { type FileReader, placed, readYaml } from "./yaml-file.ts";

const strict = { additionalProperties: false };

const credits = Type.Integer({
  minimum: 1,
  maximum: 1_000_000_000,
  description: "Whole credits.",
  "x-expects": "a whole number of credits",
});

const byQuality = Type.Object({ standard: credits, high: credits }, strict);

const byDurationAndQuality = Type.Object(
  { by_duration_and_quality: Type.Object({ "10": byQuality, "15": byQuality }, strict) },
  strict,
);

const byFrames = Type.Object(
  { by_n_frames: Type.Object({ "10": credits, "15": credits, "25": credits }, strict) },
  strict,
);

export const PriceTableSchema = Type.Object(
  {
    "gen2/text-to-video": credits,
    "gen2/image-to-video": credits,
    "gen2-pro/text-to-video": Type.Union([credits, byDurationAndQuality]),
    "gen2-pro/image-to-video": Type.Union([credits, byDurationAndQuality]),
    "gen2/watermark-remove": credits,
    "gen2-pro/storyboard": Type.Union([credits, byFrames]),
  } satisfies Record<GenerationEndpoint, TSchema>,
  { ...strict, description: "Credits per request, by the path below /api/v1/." },
);

/** @throws ConfigError */
export function loadPrices(file: string, read?: FileReader): PriceTable {
  const yaml = readYaml(file, "give each endpoint its price", read);
  const checked = validate(PriceTableSchema, yaml.data ?? {});
  const problems = [...yaml.problems, ...checked.problems.map((rule) => placed(rule, yaml))];
  if (checked.value === undefined || problems.length > 0) throw new ConfigError(problems);
  return checked.value;
}
