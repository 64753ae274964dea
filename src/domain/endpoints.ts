/** Paths below `/api/v1/`, in the order of docs/openapi.json. */
export const GENERATION_ENDPOINTS = [
  "gen2/text-to-video",
  "gen2/image-to-video",
  "gen2-pro/text-to-video",
  "gen2-pro/image-to-video",
  "gen2/watermark-remove",
  "gen2-pro/storyboard",
] as const;

export type GenerationEndpoint = (typeof GENERATION_ENDPOINTS)[number];

export const API_PREFIX = "/api/v1/";

/** An endpoint in its short form, or as a path; undefined for what is none. */
export function endpointOf(text: string): GenerationEndpoint | undefined {
  const name = text.replace(new RegExp(`^/?(?:${API_PREFIX.slice(1)})?`), "");
  return GENERATION_ENDPOINTS.find((known) => known === name);
}
