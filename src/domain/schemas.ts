import { Type } from "typebox";
import Format from "typebox/format";
import { Settings } from "typebox/system";
import type { GenerationEndpoint } from "./endpoints.ts";
import { LIST_ITEMS_MAX, TEXT_CHARS_MAX } from "./limits.ts";
import { DETAILS_MAX } from "./problems.ts";
import { isHttpsUrl, isWebUrl } from "./urls.ts";

Settings.Set({ maxErrors: DETAILS_MAX });
Format.Set("web-url", isWebUrl);
Format.Set("https-url", isHttpsUrl);

const strict = { additionalProperties: false } as const;

const bounded = `At most ${TEXT_CHARS_MAX} characters, counted as Unicode code points.`;
const prompt = Type.String({
  minLength: 1,
  maxLength: TEXT_CHARS_MAX,
  description: `What the video shows; not empty. ${bounded}`,
});
const motion = Type.Optional(
  Type.String({ maxLength: TEXT_CHARS_MAX, description: `How the image moves. ${bounded}` }),
);
const negativePrompt = Type.Optional(
  Type.String({ maxLength: TEXT_CHARS_MAX, description: `Elements to avoid. ${bounded}` }),
);
const ratios = ["16:9", "9:16", "1:1"] as const;
const aspectRatio = Type.Optional(
  Type.Enum([...ratios], { description: "Width to height. Left out, the choice is the generator's." }),
);
const duration = Type.Optional(
  Type.Enum([10, 15], { default: 10, description: "Seconds. The price depends on it." }),
);
const quality = Type.Optional(
  Type.Enum(["standard", "high"], { default: "standard", description: "The price depends on it." }),
);
const webUrl = (what: string) => Type.String({ format: "web-url", description: `${what}, http or https.` });

export const SHOT = Type.Object(
  {
    Scene: Type.String({
      minLength: 1,
      maxLength: TEXT_CHARS_MAX,
      description: `What the shot shows; not empty. The capital S is right. ${bounded}`,
    }),
    duration: Type.Number({
      exclusiveMinimum: 0,
      description: "Seconds, more than 0; fractions are allowed.",
    }),
  },
  strict,
);

/** The only source of validation, defaults and documentation. Lengths are Unicode code points. */
export const BODIES = {
  "gen2/text-to-video": Type.Object(
    {
      prompt: Type.String({
        minLength: 1,
        maxLength: 2000,
        description:
          "What the video shows; not empty, at most 2000 characters, counted as Unicode code points.",
      }),
      negativePrompt,
      aspectRatio: Type.Optional(
        Type.Enum([...ratios], { default: "16:9", description: "Width to height." }),
      ),
    },
    strict,
  ),
  "gen2/image-to-video": Type.Object(
    {
      imageUrl: Type.String({
        format: "https-url",
        description: "Address of the source image, https only; the `url` of an upload is one.",
      }),
      prompt: motion,
      negativePrompt,
      aspectRatio,
    },
    strict,
  ),
  "gen2-pro/text-to-video": Type.Object({ prompt, negativePrompt, aspectRatio, duration, quality }, strict),
  "gen2-pro/image-to-video": Type.Object(
    {
      imageUrl: webUrl("Address of the source image; the `url` of an upload is one"),
      prompt: motion,
      negativePrompt,
      aspectRatio,
      duration,
      quality,
    },
    strict,
  ),
  "gen2/watermark-remove": Type.Object(
    {
      videoUrl: Type.String({
        description:
          "Address of the video, a well-formed URL. It must begin with the one supported source host and a slash; ask " +
          "the operator which host that is, or read it in the answer to one that is wrong.",
      }),
    },
    strict,
  ),
  "gen2-pro/storyboard": Type.Object(
    {
      nFrames: Type.Enum(["10", "15", "25"], {
        description: "Total duration in seconds, as a string. The price depends on it.",
      }),
      shots: Type.Array(SHOT, {
        minItems: 1,
        maxItems: LIST_ITEMS_MAX,
        description: "At least one. Their durations add up to `nFrames` within 0.05 seconds.",
      }),
      aspectRatio: Type.Optional(
        Type.Enum(["landscape", "portrait", "square"], {
          default: "landscape",
          description: "Form of the video.",
        }),
      ),
      imageUrls: Type.Optional(
        Type.Array(webUrl("Address of an image"), {
          maxItems: LIST_ITEMS_MAX,
          description: "Reference images.",
        }),
      ),
      callBackUrl: Type.Optional(
        webUrl(
          "Address that is notified when the task has ended. Where the gateway relays callbacks, it must be public and https, and gets the messages of webhooks; else what the generator sends is its own choice",
        ),
      ),
    },
    strict,
  ),
} as const satisfies Record<GenerationEndpoint, unknown>;
