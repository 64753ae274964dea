import { spawnSync } from "node:child_process";
import { join } from "node:path";
import { expect, test } from "vitest";
import { createLogger, type LoggedRequest, logRequest } from "../../../src/telemetry/log.ts";

const LOG = join(import.meta.dirname, "../../../src/telemetry/log.ts");

/** Standard output of a process of its own; it logs as the gateway does. */
const outputOf = (script: string): string => {
  const source = `import fs from "node:fs"; import { createLogger } from "${LOG}"; const log = createLogger("info"); ${script}`;
  return spawnSync(process.execPath, ["--input-type=module", "-e", source], { encoding: "utf8" }).stdout;
};

test("lines are out when the callback that wrote them has ended: a process killed after it has lost none", () => {
  const output = outputOf(`
    setImmediate(() => { log.info("first"); log.info("second"); });
    setImmediate(() => process.kill(process.pid, "SIGKILL"));
  `);
  expect(output).toContain("first");
  expect(output).toContain("second");
});

test("the lines of one callback are one write", () => {
  const output = outputOf(`
    const write = fs.writeSync;
    let writes = 0;
    fs.writeSync = (...words) => { writes++; return write(...words); };
    setImmediate(() => {
      for (let line = 0; line < 100; line++) log.info({ line }, "one of many");
      setTimeout(() => { fs.writeSync = write; log.info({ writes }, "counted"); }, 50);
    });
  `);
  expect(output.match(/one of many/g)).toHaveLength(100);
  expect(output).toContain('"writes":1,');
});

test("lines that were not written yet are written when the process ends", () => {
  expect(outputOf('log.info("last words"); process.exit(0);')).toContain("last words");
});

test("the line of a request follows the level of the log, and is JSON whatever the client sent", () => {
  const lines: string[] = [];
  const log = createLogger("error", { write: (line) => void lines.push(line) });
  const line = { method: 'G"T', route: "none", status: 400, outcome: "o", detail: 'a "quoted"\n\u2028' };
  const { method, route, status, outcome, detail } = line;
  const request = { req: { method }, requestId: "req_1", shownId: "req_1", route } as LoggedRequest;
  const answered = { status, outcome, elapsedMs: 1.25, refused: { detail } };
  logRequest(log, "warn", request, answered);
  expect(lines).toEqual([]);
  log.level = "warn";
  logRequest(log, "info", request, answered);
  logRequest(log, "warn", request, answered);
  const own = { level: "warn", time: expect.any(String), service: "tollgate", request_id: "req_1" };
  expect(lines.map((text) => JSON.parse(text))).toEqual([{ ...line, ...own, duration_ms: 1.3 }]);
});

test("loggers of standard output share it: the process has one listener to its end for all of them", () => {
  createLogger("silent");
  const before = process.listenerCount("exit");
  for (let nth = 0; nth < 20; nth++) createLogger("silent");
  expect(process.listenerCount("exit")).toBe(before);
});
