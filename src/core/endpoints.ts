/** The six generation endpoints by their path below `/api/v1/`, in the spec's order. Spec 4.1, 8.3. */
export const GENERATION_ENDPOINTS = [
  "gen2/text-to-video",
  "gen2/image-to-video",
  "gen2-pro/text-to-video",
  "gen2-pro/image-to-video",
  "gen2/watermark-remove",
  "gen2-pro/storyboard",
] as const;

export type GenerationEndpoint = (typeof GENERATION_ENDPOINTS)[number];

/** Every path of the public port begins with this. Spec part 9. */
export const API_PREFIX = "/api/v1/";
