import { setTimeout as pause } from "node:timers/promises";
import { type Attack, MARK, type Target, TEXT_TO_VIDEO, type Twist } from "../attack.ts";
import { atOnce, Connection, deadlineOf, get, post, scaled, Tally } from "../wire.ts";

const MIB = 1024 * 1024;
const TASKS = 16;

/** As a token of a cloud is built: three parts, 600 characters, many of them alike at their beginnings. */
const LONG_SECRET = `eyJhbGciOiJSUzI1NiJ9.${"eyJzdWIiOiJ0b2xsZ2F0ZSJ9".repeat(15)}.${"c2lnbmF0dXJl".repeat(18)}`;

/** Knows the tasks of marked prompts, and adds to the answers of their polls. */
function onMarkedPolls(build: () => string): () => Twist {
  return () => {
    const added = Buffer.from(build());
    const marked = new Set<string>();
    return ({ method, path, body, answer }) => {
      if (method === "POST" && body.includes(MARK)) {
        const task = (JSON.parse(answer) as { data?: { task_id?: string } }).data?.task_id;
        if (task !== undefined) marked.add(task);
      }
      return marked.has(path.split("/").at(-1) ?? "") ? added : undefined;
    };
  };
}

/** Makes tasks and polls them in turn, as often as one key may. */
async function pollTasks(tally: Tally, target: Target): Promise<void> {
  const untilMs = deadlineOf(target);
  const body = JSON.stringify({ prompt: `${MARK} [sandbox: duration=60s]` });
  await atOnce(scaled(target, TASKS), async (nth) => {
    const connection = await Connection.open(tally, target.url);
    if (!connection) return;
    let received = "";
    connection.socket.on("data", (chunk: Buffer) => {
      if (received.length < 4096) received += chunk.toString("latin1");
    });
    await connection.ask(post(TEXT_TO_VIDEO, target.paidKey, body), untilMs);
    const task = /"task_id":"([^"]+)"/.exec(received)?.[1];
    while (task !== undefined && !connection.closed && performance.now() < untilMs) {
      await connection.ask(get(`/api/v1/tasks/${task}`, target.paidKey), untilMs);
      await pause(250 + nth);
    }
    connection.destroy();
  });
}

/** The beginnings of the credential, long ones first, each before a backslash, in two spellings, up to 1 MiB. */
function beginnings(secret: string): string {
  const parts: string[] = [];
  for (
    let size = 0, length = secret.length - 1;
    size < MIB;
    length = length > 1 ? length - 1 : secret.length - 1
  ) {
    const part = secret.slice(0, length);
    const spelled = length % 2 === 0 ? part : part.replaceAll("e", "\\u0065");
    parts.push(`${spelled}\\\\`);
    size += spelled.length + 2;
  }
  return parts
    .join("")
    .slice(0, MIB)
    .replace(/\\[^\\]{0,5}$/, "");
}

/** An upstream repeats our credential, but never quite all of it. */
export const credentialEcho: Attack = {
  name: "credential-echo",
  title:
    "the upstream answers polls of 16 tasks with 1 MiB of beginnings of a credential of 600 characters, each before a backslash, for 10 s",
  durationMs: 10_000,
  env: { UPSTREAM_API_KEY: LONG_SECRET },
  twist: onMarkedPolls(() => `,"echo":"${beginnings(LONG_SECRET)}"`),
  async send(target) {
    const tally = new Tally();
    await pollTasks(tally, target);
    return tally;
  },
};

/** An answer that is dear to parse. */
export const nestedAnswer: Attack = {
  name: "nested-answer",
  title: "the upstream answers polls of 16 tasks with 1 MiB of nested brackets, for 10 s",
  durationMs: 10_000,
  twist: onMarkedPolls(() => `,"nested":${"[".repeat(MIB / 2)}${"]".repeat(MIB / 2)}`),
  async send(target) {
    const tally = new Tally();
    await pollTasks(tally, target);
    return tally;
  },
};

const SCENES = 25;
const SCENE_CHARS = 10_000;

/** A video whose answer is six times as long as its request. */
export const escapedEcho: Attack = {
  name: "escaped-echo",
  title:
    "20 storyboards of 250,000 `<`, which the upstream repeats as `\\u003c`: 1.5 MB for each answer, and each must be charged",
  durationMs: 8000,
  twist() {
    const echo = Buffer.from(`,"echo":"${"\\u003c".repeat((SCENES - 1) * SCENE_CHARS)}"`);
    return ({ body }) => (body.includes(MARK) ? echo : undefined);
  },
  async send(target) {
    const tally = new Tally();
    const untilMs = deadlineOf(target);
    const Scene = "<".repeat(SCENE_CHARS);
    const shots = Array.from({ length: SCENES }, () => ({ Scene, duration: 10 / SCENES }));
    shots[0]!.Scene = MARK;
    const request = post(
      "/api/v1/gen2-pro/storyboard",
      target.paidKey,
      JSON.stringify({ nFrames: "10", shots }),
    );
    const total = scaled(target, 20);
    await atOnce(4, async (worker) => {
      const connection = await Connection.open(tally, target.url);
      for (let nth = worker; nth < total; nth += 4) await connection?.ask(request, untilMs);
      connection?.destroy();
    });
    tally.check(
      "each is answered with its task",
      tally.count(200) === total,
      `${tally.count(200)} of ${total}`,
    );
    return tally;
  },
};
