import { spawn } from "node:child_process";
import { once } from "node:events";
import { appendFileSync, mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { Webhook } from "standardwebhooks";
import { expect, onTestFinished, test } from "vitest";
import { newSecret, signHeaders } from "../../../src/webhooks/delivery-message.ts";
import { holdPort } from "../../support/held-port.ts";
import { soon } from "../../support/soon.ts";
import { givenSender } from "./receiver.ts";

const EXAMPLE = join(import.meta.dirname, "../../../examples/webhooks/receiver.ts");

/** The example on a port of its own, and what it has printed. */
function givenExample(env: Record<string, string>) {
  const receiver = spawn(process.execPath, [EXAMPLE], { env: { PATH: process.env.PATH ?? "", ...env } });
  let printed = "";
  receiver.stdout.setEncoding("utf8").on("data", (text: string) => {
    printed += text;
  });
  const stop = async (): Promise<void> => {
    if (receiver.exitCode !== null || receiver.signalCode !== null) return;
    receiver.kill("SIGKILL");
    await once(receiver, "exit");
  };
  onTestFinished(stop);
  return { printed: () => printed.split("\n").filter((line) => line.startsWith("task.")), stop };
}

// Guarantee: what the example has answered 2xx is on its disk, also if it is killed the moment after, and is worked on once.
test("the example receiver stores before it answers, works once over a restart, and takes both secrets", async () => {
  const folder = mkdtempSync(join(tmpdir(), "tollgate-receiver-"));
  onTestFinished(() => rmSync(folder, { recursive: true }));
  const [old, next] = [newSecret(), newSecret()];
  const held = await holdPort();
  onTestFinished(() => held.release());
  const inbox = join(folder, "inbox.jsonl");
  const env = { PORT: String(held.port), INBOX: inbox, WEBHOOK_SECRETS: `${old} ${next}` };
  const sender = givenSender();
  const send = (id: string, secret: string) => {
    const body = JSON.stringify({ type: "task.completed", data: { task_id: `task_${id}` } });
    const timestampS = Math.floor(Date.now() / 1000);
    const headers = { ...signHeaders({ id, timestampS, body, signers: [new Webhook(secret)] }) };
    return sender.send({ url: `http://127.0.0.1:${held.port}/hook`, headers, body });
  };
  const delivered = (id: string, secret: string) =>
    soon(async () => expect(await send(id, secret)).toMatchObject({ outcome: "delivered", status: 204 }));

  const first = givenExample(env);
  await delivered("evt_1", old);
  await first.stop();
  expect(readFileSync(inbox, "utf8")).toContain('"id":"evt_1"');

  // As a crash in the middle of a write leaves it; the message was not answered, and comes again.
  appendFileSync(inbox, '{"id":"evt_2","mess');
  const second = givenExample(env);
  await delivered("evt_1", old);
  await delivered("evt_2", next);
  expect(await send("evt_3", newSecret())).toMatchObject({ outcome: "failed", status: 401 });
  await soon(() => expect(second.printed()).toEqual(["task.completed task_evt_2 (evt_2)"]));
  const ids = readFileSync(inbox, "utf8")
    .trim()
    .split("\n")
    .map((line) => JSON.parse(line).id);
  expect(ids).toEqual(["evt_1", "evt_2"]);
});
