import { execFile, spawn, spawnSync } from "node:child_process";
import { once } from "node:events";
import { mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { connect } from "node:net";
import { join } from "node:path";
import { promisify } from "node:util";
import { Webhook } from "standardwebhooks";
import { expect, onTestFinished, test } from "vitest";
import { TEST_EVENT, WEBHOOK_EVENT_TYPES } from "../../../src/domain/webhook-events.ts";
import { newSecret, signHeaders } from "../../../src/webhooks/delivery-message.ts";
import { holdPort } from "../../support/held-port.ts";
import { soon } from "../../support/soon.ts";
import { givenSender } from "./receiver.ts";

// Guarantee: each example of docs/webhooks.md, run as it stands there, takes what the gateway signs and nothing else.

const ROOT = join(import.meta.dirname, "../../..");
const PAGE = readFileSync(join(ROOT, "docs/webhooks.md"), "utf8");
const run = promisify(execFile);
const nowS = (): number => Math.floor(Date.now() / 1000);

/** An example by the name of its file, which stands in its first line. */
function example(name: string): string {
  const blocks = [...PAGE.matchAll(/```\w+\n((?:\/\/|#|<\?php \/\/) (\S+?)[ :\n][\s\S]+?)```/g)];
  const text = blocks.find(([, , file]) => file === name)?.[1];
  expect(text, `docs/webhooks.md has ${name}`).toBeDefined();
  return text!;
}

/** A folder inside the project, where the packages are found. */
function givenFolder(): string {
  const folder = mkdtempSync(join(ROOT, "node_modules/.webhooks-"));
  onTestFinished(() => rmSync(folder, { recursive: true }));
  return folder;
}

interface Received {
  secret: string;
  headers: Record<string, string>;
  body: string;
}

/** Messages, and whether a receiver with this secret is to take them. */
function messages(): [what: string, received: Received, valid: boolean][] {
  const [secret, other] = [newSecret(), newSecret()];
  const body = JSON.stringify({
    type: "task.completed",
    data: { task_id: "task_1", prompt: 'Fuß 🧊 % \\ "' },
  });
  const signed = (timestampS: number, secrets: string[]): Record<string, string> => ({
    ...signHeaders({ id: "evt_1", timestampS, body, signers: secrets.map((one) => new Webhook(one)) }),
  });
  const fresh = signed(nowS(), [secret]);
  return [
    ["a good one", { secret, headers: fresh, body }, true],
    ["one that two secrets have signed", { secret, headers: signed(nowS(), [other, secret]), body }, true],
    ["another body", { secret, headers: fresh, body: `${body} ` }, false],
    ["another id", { secret, headers: { ...fresh, "webhook-id": "evt_2" }, body }, false],
    ["another secret", { secret: other, headers: fresh, body }, false],
    ["an old one", { secret, headers: signed(nowS() - 600, [secret]), body }, false],
    ["one of the future", { secret, headers: signed(nowS() + 600, [secret]), body }, false],
    ["a time that is no number", { secret, headers: { ...fresh, "webhook-timestamp": "²" }, body }, false],
    [
      "a time of 5,000 digits",
      { secret, headers: { ...fresh, "webhook-timestamp": "9".repeat(5000) }, body },
      false,
    ],
    ["no signature", { secret, headers: { ...fresh, "webhook-signature": "v1," }, body }, false],
  ];
}

const PYTHON = `
import json, sys
from verify import verify
one = json.load(sys.stdin)
print(verify(one["secret"], one["headers"], one["body"].encode()))
`;
const PHP = `<?php
require 'verify.php';
$one = json_decode(stream_get_contents(STDIN), true);
echo verify($one['secret'], $one['headers'], $one['body']) ? 'True' : 'False';
`;

const isThere = (program: string): boolean => spawnSync(program, ["--version"]).status === 0;
/** PHP is not on every machine that runs the tests. */
const PROGRAMS = [
  { program: "python3", file: "verify.py", caller: "call.py", text: PYTHON },
  ...(isThere("php") ? [{ program: "php", file: "verify.php", caller: "call.php", text: PHP }] : []),
];

test.each(PROGRAMS)(
  "the example $file takes what is signed, and nothing else",
  async ({ program, file, caller, text }) => {
    const folder = givenFolder();
    writeFileSync(join(folder, file), example(file));
    writeFileSync(join(folder, caller), text);
    for (const [what, received, valid] of messages()) {
      const child = run(program, [caller], { cwd: folder, timeout: 30_000 });
      child.child.stdin?.end(JSON.stringify(received));
      expect((await child).stdout.trim(), what).toBe(valid ? "True" : "False");
    }
  },
);

test("the example verify.sh takes what is signed, and nothing else", async () => {
  const folder = givenFolder();
  writeFileSync(join(folder, "verify.sh"), example("verify.sh"));
  for (const [what, { secret, headers, body }, valid] of messages()) {
    writeFileSync(join(folder, "body"), body);
    const env = {
      PATH: process.env.PATH,
      WEBHOOK_SECRET: secret,
      ID: headers["webhook-id"],
      TIMESTAMP: headers["webhook-timestamp"],
      SIGNATURE: headers["webhook-signature"],
    };
    const { status, stdout } = spawnSync("sh", ["verify.sh", "body"], { cwd: folder, env, encoding: "utf8" });
    expect([status, stdout.trim() === "valid"], what).toEqual([valid ? 0 : 1, valid]);
  }
});

// Guarantee: a time that is a command is not run. `sh` is bash on many machines, which runs what stands in an index.
test.each(["sh", ...(isThere("bash") ? ["bash"] : [])])(
  "the example verify.sh runs nothing of a message, by %s",
  (shell) => {
    const folder = givenFolder();
    writeFileSync(join(folder, "verify.sh"), example("verify.sh"));
    writeFileSync(join(folder, "body"), "{}");
    const command = "$(touch ran)";
    const env = { PATH: process.env.PATH, WEBHOOK_SECRET: newSecret(), ID: command, SIGNATURE: command };
    for (const TIMESTAMP of [`a[${command}]`, command, "", "-1", "1 1"]) {
      const options = { cwd: folder, env: { ...env, TIMESTAMP }, encoding: "utf8" } as const;
      const { status, stdout } = spawnSync(shell, ["verify.sh", "body"], options);
      expect([status, stdout]).toEqual([1, "not valid\n"]);
      expect(readdirSync(folder).sort()).toEqual(["body", "verify.sh"]);
    }
  },
);

test("the example receiver.mjs takes what is signed, works once per message, and refuses the rest", async () => {
  const folder = givenFolder();
  writeFileSync(join(folder, "receiver.mjs"), example("receiver.mjs"));
  const secret = newSecret();
  const held = await holdPort();
  const env = { PATH: process.env.PATH, PORT: String(held.port), WEBHOOK_SECRET: secret };
  const receiver = spawn(process.execPath, ["receiver.mjs"], { cwd: folder, env });
  let printed = "";
  receiver.stdout.setEncoding("utf8").on("data", (text: string) => {
    printed += text;
  });
  onTestFinished(async () => {
    held.release();
    receiver.kill();
    await once(receiver, "exit");
  });
  const sender = givenSender();
  const url = `http://127.0.0.1:${held.port}/`;
  const body = JSON.stringify({ type: "task.completed", data: { task_id: "task_1" } });
  const send = (by: string) => {
    const headers = { ...signHeaders({ id: "evt_1", timestampS: nowS(), body, signers: [new Webhook(by)] }) };
    return sender.send({ url, headers, body });
  };
  await soon(async () => expect(await send(secret)).toMatchObject({ outcome: "delivered", status: 204 }));
  // Anybody can begin a request and leave.
  const leaving = connect(held.port, "127.0.0.1");
  leaving.end("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\nbegun");
  await once(leaving.resume(), "close");
  expect(await send(secret)).toMatchObject({ outcome: "delivered" });
  expect(await send(newSecret())).toMatchObject({ outcome: "failed", status: 401 });
  await soon(() => expect(printed).toBe("task.completed task_1\n"));
});

test("the page has a row for each type of event", () => {
  const rows = [...PAGE.matchAll(/^\| `([a-z]+\.[a-z]+)` \|/gm)].map(([, type]) => type);
  expect(rows.sort()).toEqual([...WEBHOOK_EVENT_TYPES, TEST_EVENT].sort());
});
