import { Type } from "typebox";
import Format from "typebox/format";
import { Settings } from "typebox/system";
import type { GenerationEndpoint } from "./endpoints.ts";
import { isHttpsUrl, isWebUrl } from "./urls.ts";

/** All problems of a body are reported at once, up to this many. */
Settings.Set({ maxErrors: 64 });
Format.Set("web-url", isWebUrl);
Format.Set("https-url", isHttpsUrl);

const strict = { additionalProperties: false } as const;

// Texts of rules that a JSON Schema keyword cannot put into words are kept beside the rule, as `description`.
const prompt = Type.String({ minLength: 1, description: "What the video shows." });
const motion = Type.Optional(Type.String({ description: "How the image moves." }));
const negativePrompt = Type.Optional(Type.String({ description: "Elements to avoid." }));
const ratios = ["16:9", "9:16", "1:1"] as const;
const aspectRatio = Type.Optional(Type.Enum([...ratios]));
const duration = Type.Optional(Type.Enum([10, 15], { default: 10, description: "Seconds." }));
const quality = Type.Optional(Type.Enum(["standard", "high"], { default: "standard" }));
const webUrl = Type.String({ format: "web-url" });

/**
 * The bodies of the six generation endpoints: the one source of validation, defaults and documentation.
 * Lengths are Unicode code points. Spec 4.2 to 4.7.
 */
export const BODIES = {
  "gen2/text-to-video": Type.Object(
    {
      prompt: Type.String({ minLength: 1, maxLength: 2000, description: "What the video shows." }),
      negativePrompt,
      aspectRatio: Type.Optional(Type.Enum([...ratios], { default: "16:9" })),
    },
    strict,
  ),
  "gen2/image-to-video": Type.Object(
    { imageUrl: Type.String({ format: "https-url" }), prompt: motion, negativePrompt, aspectRatio },
    strict,
  ),
  "gen2-pro/text-to-video": Type.Object({ prompt, negativePrompt, aspectRatio, duration, quality }, strict),
  "gen2-pro/image-to-video": Type.Object(
    { imageUrl: webUrl, prompt: motion, negativePrompt, aspectRatio, duration, quality },
    strict,
  ),
  "gen2/watermark-remove": Type.Object(
    { videoUrl: Type.String({ description: "On the supported source host." }) },
    strict,
  ),
  "gen2-pro/storyboard": Type.Object(
    {
      nFrames: Type.Enum(["10", "15", "25"], { description: "Total duration in seconds, as a string." }),
      shots: Type.Array(
        Type.Object(
          { Scene: Type.String({ minLength: 1 }), duration: Type.Number({ exclusiveMinimum: 0 }) },
          strict,
        ),
        { minItems: 1, description: "Durations add up to nFrames within 0.05 seconds." },
      ),
      aspectRatio: Type.Optional(Type.Enum(["landscape", "portrait", "square"], { default: "landscape" })),
      imageUrls: Type.Optional(Type.Array(webUrl)),
      callBackUrl: Type.Optional(webUrl),
    },
    strict,
  ),
} as const satisfies Record<GenerationEndpoint, unknown>;
