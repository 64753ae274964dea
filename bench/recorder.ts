import type { World } from "./world.ts";

/** A command to Redis; in its words, what changes from call to call is a `{name}`. */
export interface Template {
  words: string[];
}

/** A number of a word that is so near to now is a time, and becomes `{soon}`. */
const NEAR_MS = 60_000;

/**
 * Records by MONITOR the commands that are sent to Redis while something runs, without those of scripts.
 * @param names values that become `{name}`; given once all is sent, for some are known only then
 */
export async function record(
  world: World,
  action: () => Promise<{ names: Record<string, string>; tag: string }>,
): Promise<Template[]> {
  const monitor = await world.redis.monitor();
  try {
    const sent: string[][] = [];
    monitor.on("monitor", (_time: string, words: string[], source: string) => {
      if (source !== "lua") sent.push(words.map(printed));
    });
    const { names, tag } = await action();
    // Its own entry comes after all others.
    await world.redis.ping();
    return sent.map((words) => ({ words: words.map((word) => template(word, names, tag)) }));
  } finally {
    monitor.disconnect();
  }
}

const ESCAPES: Readonly<Record<string, string>> = { n: "\n", r: "\r", t: "\t", a: "\x07", b: "\b" };

/** A word as it was sent; MONITOR prints it with escapes, of which the client undoes those of quotes alone. */
export const printed = (word: string): string =>
  Buffer.from(
    word.replace(/\\(?:x([0-9a-f]{2})|(.))/g, (_, hex?: string, letter = "") =>
      hex === undefined ? (ESCAPES[letter] ?? letter) : String.fromCharCode(Number.parseInt(hex, 16)),
    ),
    "latin1",
  ).toString();

/** One word of a recorded command as a template. */
export function template(word: string, names: Record<string, string>, tag: string): string {
  const timed = word.replace(/\b\d{13}\b/g, (number) =>
    Math.abs(Number(number) - Date.now()) < NEAR_MS ? "{soon}" : number,
  );
  const named = Object.entries(names).reduce(
    (text, [name, value]) => text.replaceAll(value, `{${name}}`),
    timed,
  );
  return named.replaceAll(`{${tag}}`, "{{tag}}");
}

/** The hash tag of a partition without its braces. */
export const partitionTag = (partition: number): string => `p${String(partition).padStart(2, "0")}`;

/** How many partitions the store was begun with. */
export const partitions = async (world: World): Promise<number> =>
  Number(await world.redis.hget("tg:meta", "partitions"));
