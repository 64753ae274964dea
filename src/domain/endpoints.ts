import { nearest, shown } from "./problems.ts";

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

/** Method, origin and prefix, as people copy them from pages and logs. */
const AROUND = /^(?:post\s+)?(?:https?:\/\/[^/]+)?\/*(?:api\/)?(?:v1\/)?|\/+$/g;

/** The endpoint that a text names: `gen2/text-to-video`, its path, or its address, also percent-encoded, in any case of letters. */
export function generationEndpoint(text: string): GenerationEndpoint | undefined {
  const name = decoded(text).trim().toLowerCase().replaceAll(AROUND, "");
  return GENERATION_ENDPOINTS.find((endpoint) => endpoint === name);
}

/** As it is if it is no percent-encoded text. */
export function decoded(text: string): string {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

export function noEndpoint(text: string): string {
  const meant = nearest(text, GENERATION_ENDPOINTS);
  const advice =
    meant === undefined ? `there are ${GENERATION_ENDPOINTS.join(", ")}` : `did you mean ${meant}?`;
  return `${shown(text)} is no generation endpoint; ${advice}`;
}
