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

/** As above, for `fetch`. */
export const generationInit = (token: string) => ({
  method: "POST",
  headers: { authorization: `Bearer ${token}`, "content-type": "application/json" },
  body: GENERATION.body,
});

export const generationTarget = (token: string): Target => ({ method: "POST", ...GENERATION, token });

/** One generation through a running program. @returns the id of its task @throws when it was not admitted */
export async function generateOne(url: string, token: string): Promise<string> {
  const response = await fetch(url + GENERATION.path, generationInit(token));
  const answer = (await response.json()) as { data?: { task_id?: string } };
  const taskId = answer.data?.task_id;
  if (taskId === undefined) throw new Error(`a generation was answered ${JSON.stringify(answer)}`);
  return taskId;
}
