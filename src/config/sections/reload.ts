import { Type } from "typebox";
import { GENERATION_ENDPOINTS } from "../../domain/endpoints.ts";

export const reloadSchema = Type.Enum(["auto", "signal"], {
  default: "auto",
  description:
    "When a running gateway reads changed files: auto, as soon as they have changed; signal, at SIGHUP only.",
});

/** Confirmed one by one, so that an old entry confirms nothing else. */
export const confirmedPricesSchema = Type.Object(
  {},
  {
    description:
      "Prices that may change more than tenfold at a reload, each with its new value; a storyboard's 10 frames are " +
      "gen2-pro/storyboard.by_n_frames.10.",
    default: {},
    additionalProperties: false,
    patternProperties: {
      [`^(${GENERATION_ENDPOINTS.join("|")})(\\.by_[a-z_]+\\.\\d+(\\.[a-z]+)?)?$`]: Type.Integer({
        minimum: 1,
        maximum: 1_000_000_000,
        description: "The new price, in whole credits.",
        "x-expects": "a whole number of credits",
      }),
    },
    "x-keys":
      "is no price: write an endpoint such as gen2/text-to-video, or one of its prices as `config diff` names it",
  },
);
