import type { Target } from "./load/wrk.ts";

/** A generation request of about 150 bytes. */
export const GENERATION = {
  path: "/api/v1/gen2/text-to-video",
  body: JSON.stringify({
    prompt:
      "A paper boat on a calm lake at sunset, drifting slowly between water lilies while the camera circles",
    aspectRatio: "16:9",
  }),
};

/** The same for `fetch`. */
export const generationInit = (token: string) => ({
  method: "POST",
  headers: { authorization: `Bearer ${token}`, "content-type": "application/json" },
  body: GENERATION.body,
});

export const generationTarget = (token: string): Target => ({ method: "POST", ...GENERATION, token });
