import { IncomingMessage } from "node:http";
import { Socket } from "node:net";
import { expect, test } from "vitest";
import { unrounded } from "../../../src/admin/api/request.ts";
import { TASK_ID } from "../../../src/domain/answers.ts";
import { validateGeneration } from "../../../src/domain/generation.ts";
import { parseJson, parseObject } from "../../../src/domain/json.ts";
import { IDEMPOTENCY_KEY, JSON_VALUES_MAX } from "../../../src/domain/limits.ts";
import { nearest } from "../../../src/domain/problems.ts";
import { isHttpsUrl, isOnSourceHost, isWebUrl } from "../../../src/domain/urls.ts";
import { clientAddress } from "../../../src/gateway/address.ts";
import { createAuthenticator } from "../../../src/gateway/authenticate.ts";
import { type Exchange, takeRequestId } from "../../../src/gateway/http-exchange.ts";
import {
  isWebSocketUpgrade,
  jsonHeadFault,
  type RequestHead,
  readHead,
} from "../../../src/gateway/protocol.ts";
import { route } from "../../../src/gateway/request-lifecycle.ts";
import { isTraceState, parseTraceParent } from "../../../src/telemetry/trace.ts";
import { shownTaskId, upstreamTaskId, withoutSecret } from "../../../src/upstream/answer.ts";
import { endpointOf } from "../../../src/upstream/task-route.ts";
import { type FormEvents, ImageForm } from "../../../src/upstream/upload-form.ts";
import { formBoundary } from "../../../src/upstream/upload-stream.ts";
import { interpretAnswer, readGeneration, readPoll } from "../../support/envelope-answers.ts";

/** A request with one header line, as node:http hands it over. */
function withHeader(name: string, value: string): IncomingMessage {
  const req = new IncomingMessage(new Socket());
  [req.httpVersionMajor, req.httpVersionMinor, req.method, req.url] = [1, 1, "POST", "/api/v1/x"];
  req.rawHeaders = ["Host", "a", name, value];
  req.headers = { host: "a", [name.toLowerCase()]: value };
  return req;
}

const LIMITS = { maxHeaderLines: 100 };
const SECRET = "eyJhbGciOiJFUzI1NiJ9.eyJpc3MiOiJ0b2xsZ2F0ZSJ9";
const authenticator = createAuthenticator({ lookup: async () => undefined, unknownPerMinute: () => 1e9 });
const address = clientAddress(["10.0.0.0/8"]);
const STORYBOARD = "gen2-pro/storyboard";
const shot = { Scene: "a", duration: 10 };
const answered = (body: string, retryAfter?: string) =>
  ({ outcome: "answered", status: 200, retryAfter, body }) as const;
const NOBODY: FormEvents = {
  image: () => ({ write: () => true, onDrain: () => undefined }),
  whole: () => undefined,
  refused: () => undefined,
};

/** Everything that takes text from customers or from the upstream, by what it is given; and numbers of the management API. */
const READERS: Record<string, (text: string) => unknown> = {
  "withoutSecret, long": withoutSecret(SECRET),
  "withoutSecret, periodic": withoutSecret("ab".repeat(200)),
  "withoutSecret, short": withoutSecret("ab"),
  parseJson,
  parseObject,
  "parseJson, in a string": (text) => parseJson(JSON.stringify({ prompt: text })),
  "readGeneration, raw": (text) => readGeneration(answered(text)),
  "readGeneration, task id": (text) =>
    readGeneration(answered(JSON.stringify({ code: 200, data: { task_id: text } }))),
  "readGeneration, a further field": (text) =>
    readGeneration(answered(JSON.stringify({ code: 200, data: { task_id: "t1", more: text.repeat(4) } }))),
  "readPoll, status": (text) =>
    readPoll(answered(JSON.stringify({ code: 200, data: { task_id: "t1", status: text } })), {
      taskId: "t1",
    }),
  "readPoll, progress, times and address": (text) => {
    const data = { task_id: "t1", status: "completed", progress: text, created_at: text, completed_at: text };
    return readPoll(answered(JSON.stringify({ code: 200, data: { ...data, video_url: text } })), {
      taskId: "t1",
    });
  },
  "readGeneration, a refusal": (text) =>
    readGeneration({ ...answered(JSON.stringify({ code: 403, error: { message: text } })), status: 403 }),
  "readGeneration, an answer that is no JSON": (text) =>
    readGeneration({ ...answered(text), status: 500 }, text),
  "interpretAnswer, url and expiry": (text) => {
    const data = { url: `https://a.example/${text}`, expires_at: `2026-01-01T00:00:00.${text}` };
    return interpretAnswer({ status: 200, retryAfter: undefined, body: JSON.stringify({ code: 200, data }) });
  },
  "readGeneration, a refusal's text and the request": (text) => {
    const body = JSON.stringify({ code: 1, error: text });
    return readGeneration({ status: 400, retryAfter: undefined, body }, text);
  },
  "readGeneration, Retry-After": (text) =>
    readGeneration({ status: 429, retryAfter: `Mon, 01 ${text}`, body: "" }),
  "task ids": (text) => upstreamTaskId(shownTaskId(text.slice(0, 100)) ?? text),
  "tags of tasks": (text) => endpointOf(`https://a.example#${text}`),
  isWebUrl: (text) => isWebUrl(`https://${text}`),
  "isWebUrl, host and path": (text) => isWebUrl(`https://a.example/${text}\\`),
  "isHttpsUrl, user": (text) => isHttpsUrl(`https://${text}@a.example/`),
  isOnSourceHost: (text) => isOnSourceHost(`https://a.example/${text}`, "https://a.example"),
  "validateGeneration, names": (text) =>
    validateGeneration("gen2/text-to-video", { [text]: text }, "https://a"),
  "validateGeneration, values": (text) =>
    validateGeneration(
      STORYBOARD,
      { nFrames: text, shots: [shot], aspectRatio: text, callBackUrl: text },
      "https://a",
    ),
  "validateGeneration, texts": (text) =>
    validateGeneration(STORYBOARD, { nFrames: "10", shots: [{ ...shot, Scene: text }] }, "https://a"),
  "validateGeneration, shots": (text) => {
    const shots = Array.from({ length: Math.min(text.length / 8, JSON_VALUES_MAX / 3) }, (_, at) => ({
      [`x${at}`]: 1,
    }));
    return validateGeneration(STORYBOARD, { nFrames: "10", shots }, "https://a");
  },
  "unrounded, digits": (text) => unrounded(`1.${text.replaceAll(/[^0-9]/g, "")}1`),
  nearest: (text) => nearest(text, ["prompt"]),
  TASK_ID: (text) => TASK_ID.test(text),
  IDEMPOTENCY_KEY: (text) => IDEMPOTENCY_KEY.test(text),
  route: (text) => route("GET", `/api/v1/tasks/${text}`),
  "readHead, Host": (text) => readHead(withHeader("Host", text), LIMITS),
  "readHead, Transfer-Encoding": (text) => readHead(withHeader("Transfer-Encoding", text), LIMITS),
  "readHead, a name": (text) => readHead(withHeader(text, "a"), LIMITS),
  isWebSocketUpgrade: (text) => isWebSocketUpgrade(withHeader("Upgrade", text)),
  jsonHeadFault: (text) =>
    jsonHeadFault({ contentEncoding: false, contentType: `application/json;${text}` } as RequestHead),
  takeRequestId: (text) => takeRequestId({} as Exchange, text),
  "authenticate, scheme": (text) => authenticator.authenticate(`bearer ${text}`, "a"),
  "authenticate, key": (text) => authenticator.authenticate(`bearer sk_a${text}`, "a"),
  clientAddress: (text) => address("10.0.0.1", text),
  parseTraceParent: (text) => parseTraceParent(`00-${"a".repeat(32)}-${"b".repeat(16)}-01-${text}`),
  isTraceState,
  "formBoundary, type": (text) => formBoundary({ "content-type": `multipart/form-data;${text}` }),
  "ImageForm, body": (text) => new ImageForm("x", NOBODY).write(Buffer.from(text, "latin1")),
  "ImageForm, part's head": (text) =>
    new ImageForm("x", NOBODY).write(
      Buffer.from(
        `--x\r\nContent-Disposition: form-data; name="${text}"; filename="a"\r\n\r\nGIF89a`,
        "latin1",
      ),
    ),
};

/** Pieces that patterns stumble over when they are repeated: runs, separators, beginnings of what is looked for. */
const PIECES = [
  "a",
  " ",
  "0",
  ".",
  ",",
  "\\",
  '"',
  "[",
  "[]",
  "{}",
  '{"a":',
  "[0,",
  "9".repeat(15),
  "a.",
  "a:",
  "a@",
  "1.",
  ":1",
  "]:1",
  "[::",
  "%2e",
  "(",
  "websocket ",
  ", ",
  "sk_",
  "\r\n--x",
  "\r",
  "--x\r\n",
  ";boundary=x ",
  "\ud800",
  SECRET.slice(0, 40),
  `${SECRET.slice(0, 25)}\\`,
  [...SECRET.slice(0, 30)].map((char) => `\\u00${char.charCodeAt(0).toString(16)}`).join(""),
];

const CHARS_MAX = 1 << 17;
/** Reading as much takes some ms; with the square of the length it would take 10 s and more. */
const CPU_MS_MAX = 1000;

/** From a few on, so that a reader that takes powers of two, or the third power, is found out while the test can still end. */
const LENGTHS = [16, 32, 64, 128, 256, 512, 1024, 4096, 16_384, CHARS_MAX];

// Guarantee: whatever is sent, reading it takes time in proportion to its length.
test.each(Object.entries(READERS))("%s takes time in proportion to its text", (_, read) => {
  for (const piece of PIECES) {
    for (const chars of LENGTHS) {
      const text = piece.repeat(Math.ceil(chars / piece.length));
      const before = process.threadCpuUsage();
      read(text);
      const { user, system } = process.threadCpuUsage(before);
      expect((user + system) / 1000, `CPU ms for ${chars} characters of ${piece}`).toBeLessThan(CPU_MS_MAX);
    }
  }
});
