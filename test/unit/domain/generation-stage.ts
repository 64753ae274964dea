import { expect } from "vitest";
import type { GenerationEndpoint } from "../../../src/domain/endpoints.ts";
import { validateGeneration } from "../../../src/domain/generation.ts";

export const HOST = "https://videos.example.com";
export const SMILE = "\u{1F600}";

export const T2V = "gen2/text-to-video";
export const I2V = "gen2/image-to-video";
export const PRO_T2V = "gen2-pro/text-to-video";
export const PRO_I2V = "gen2-pro/image-to-video";
export const WATERMARK = "gen2/watermark-remove";
export const STORYBOARD = "gen2-pro/storyboard";

export const IMAGE = "https://images.example.com/cat.png";
/** The smallest body that each endpoint accepts. */
export const MINIMAL: Record<GenerationEndpoint, Record<string, unknown>> = {
  [T2V]: { prompt: "a" },
  [I2V]: { imageUrl: IMAGE },
  [PRO_T2V]: { prompt: "a" },
  [PRO_I2V]: { imageUrl: IMAGE },
  [WATERMARK]: { videoUrl: `${HOST}/v.mp4` },
  [STORYBOARD]: { nFrames: "10", shots: [{ Scene: "a", duration: 10 }] },
};

export function validate(endpoint: GenerationEndpoint, body: unknown) {
  return validateGeneration(endpoint, body, HOST);
}

/** The body that goes upstream. */
export function sent(endpoint: GenerationEndpoint, body: unknown): unknown {
  const result = validate(endpoint, body);
  if (!result.ok) throw new Error(`refused: ${JSON.stringify(result.problems)}`);
  return JSON.parse(result.text);
}

/** Path and message of all problems, as "path: message". */
export function problems(endpoint: GenerationEndpoint, body: unknown): string[] {
  const result = validate(endpoint, body);
  return result.ok ? [] : result.problems.map(({ path, message }) => `${path}: ${message}`);
}

/** The minimal body with changes; undefined removes a parameter. */
export function changed(
  endpoint: GenerationEndpoint,
  changes: Record<string, unknown>,
): Record<string, unknown> {
  const body: Record<string, unknown> = { ...MINIMAL[endpoint], ...changes };
  for (const [name, value] of Object.entries(body)) if (value === undefined) delete body[name];
  return body;
}

export const accepts = (endpoint: GenerationEndpoint, changes: Record<string, unknown>): void =>
  expect(problems(endpoint, changed(endpoint, changes))).toEqual([]);

/** Exactly one problem, at this path. */
export function refuses(endpoint: GenerationEndpoint, changes: Record<string, unknown>, path: string): void {
  const found = problems(endpoint, changed(endpoint, changes));
  expect(found.map((problem) => problem.split(": ")[0])).toEqual([path]);
}

export const ALL = Object.keys(MINIMAL) as GenerationEndpoint[];
