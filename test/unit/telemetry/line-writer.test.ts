import { spawn } from "node:child_process";
import { once } from "node:events";
import { openSync } from "node:fs";
import { join } from "node:path";
import { expect, onTestFinished, test } from "vitest";
import { until } from "../../support/until.ts";

const TELEMETRY = join(import.meta.dirname, "../../../src/telemetry");

/** A process that logs as the gateway does; what it says to the test goes to standard error. */
function startLogging(script: string, { stdout = "pipe" as "pipe" | number, shared = false } = {}) {
  const source = `
    import fs from "node:fs";
    import { createLogger, dropped, standardOutput } from "${TELEMETRY}/log.ts";
    const log = createLogger("info", standardOutput({ shared: ${shared} }));
    const say = (what) => fs.writeSync(2, JSON.stringify(what) + "\\n");
    const turn = () => new Promise((resolve) => setImmediate(resolve));
    ${script}`;
  const child = spawn(process.execPath, ["--input-type=module", "-e", source], {
    stdio: ["ignore", stdout, "pipe"],
  });
  onTestFinished(() => void child.kill("SIGKILL"));
  let errorText = "";
  child.stderr?.setEncoding("utf8").on("data", (text: string) => {
    errorText += text;
  });
  return {
    child,
    /** Once the process has ended. */
    async logged(): Promise<Record<string, unknown>[]> {
      if (child.exitCode === null) await once(child, "close");
      return errorText
        .trim()
        .split("\n")
        .map((line) => JSON.parse(line));
    },
    outputSoFar: () => errorText,
  };
}

const parsed = (output: string): Record<string, unknown>[] =>
  output
    .split("\n")
    .filter((line) => line !== "")
    .map((line) => JSON.parse(line));

const LINES = 50_000;
/** Many lines, a few in each callback of the event loop; then what was lost and how much memory is held. */
const FLOOD = `
  for (let line = 0; line < ${LINES}; line++) {
    log.info({ line }, "one of very many lines, which is about as long as the line of a request: 0123456789 0123456789");
    if (line % 10 === 9) await turn();
  }
  await turn();`;
const MEMORY = `global.gc?.(); say({ dropped: dropped.lines, external: process.memoryUsage().arrayBuffers });`;

// Guarantee: a reader that stops holds nobody up, and takes no memory without bound; each line that is lost is counted.
test("a reader that stops: the process goes on, what waits is bounded, each line is read or counted", async () => {
  const { child, logged, outputSoFar } = startLogging(`
    ${FLOOD} ${MEMORY}
    process.on("SIGTERM", () => { say({ dropped: dropped.lines }); process.exit(0); });
    setInterval(() => undefined, 1000);`);
  await until(
    () => outputSoFar().includes("dropped"),
    "the process to have written all, with nobody reading",
  );
  let output = "";
  child.stdout!.setEncoding("utf8").on("data", (text: string) => {
    output += text;
  });
  const lines = () => output.split("\n").length - 1;
  const [first] = parsed(outputSoFar());
  expect(Number(first!.dropped)).toBeGreaterThan(LINES / 2);
  expect(Number(first!.external)).toBeLessThan(8 * 1024 * 1024);
  await until(() => lines() === LINES - Number(first!.dropped), "the lines that waited");
  child.kill("SIGTERM");
  const last = (await logged()).at(-1);
  expect(parsed(output)).toHaveLength(LINES - Number(last!.dropped));
});

test("a reader that has gone: every line is counted, and the process goes on", async () => {
  const { child, logged } = startLogging(`
    process.on("SIGUSR2", async () => { ${FLOOD} ${MEMORY} process.exit(0); });
    setInterval(() => undefined, 1000);
    log.info("ready");`);
  await once(child.stdout!, "data");
  child.stdout!.destroy();
  await once(child.stdout!, "close");
  child.kill("SIGUSR2");
  expect(await logged()).toEqual([expect.objectContaining({ dropped: LINES })]);
});

test("a full disk: what waits is bounded, and the lines beyond it are counted", async () => {
  const { logged } = startLogging(`${FLOOD} ${MEMORY} process.exit(0);`, {
    stdout: openSync("/dev/full", "w"),
  });
  const [{ dropped, external } = {}] = await logged();
  expect(Number(dropped)).toBeGreaterThan(LINES / 2);
  expect(Number(external)).toBeLessThan(8 * 1024 * 1024);
});

test("at the end of the process a slow reader still gets what waits, and one that stopped does not keep it", async () => {
  const lines = `for (let line = 0; line < 2000; line++) log.info({ line }, "x".repeat(100)); process.exit(0);`;
  const slow = startLogging(lines);
  let output = "";
  slow.child.stdout!.setEncoding("utf8").on("data", (text: string) => {
    output += text;
  });
  await once(slow.child, "close");
  expect(parsed(output)).toHaveLength(2000);
  const stopped = startLogging(lines);
  await once(stopped.child, "exit");
});

// Guarantee: several processes on one pipe do not break each other's lines.
test("several writers and a slow reader: every line is whole, also one that is longer than a pipe takes at once", async () => {
  const writers = 3;
  const source = `
    import { spawn } from "node:child_process";
    const script = ${JSON.stringify(`
      import { createAudit, createLogger, dropped, standardOutput } from "${TELEMETRY}/log.ts";
      const log = createLogger("info", standardOutput({ shared: true }));
      const audit = createAudit(log);
      for (let turn = 0; turn < 300; turn++) {
        for (let line = 0; line < 20; line++) log.info({ turn, line }, "x".repeat(line * 40));
        audit.info({ turn, long: 'ü"'.repeat(4000) }, "a long line");
        await new Promise((resolve) => setTimeout(resolve, 1));
      }
      process.on("exit", () => process.stderr.write(dropped.lines + "\\n"));
      process.exit(0);`)};
    for (let n = 0; n < ${writers}; n++) {
      spawn(process.execPath, ["--input-type=module", "-e", script], { stdio: "inherit" });
    }`;
  const child = spawn(process.execPath, ["--input-type=module", "-e", source], {
    stdio: ["ignore", "pipe", "pipe"],
  });
  let output = "";
  let counted = "";
  child.stderr.setEncoding("utf8").on("data", (text: string) => {
    counted += text;
  });
  child.stdout.setEncoding("utf8").on("data", (text: string) => {
    output += text;
    // Slow: the pipe is full again and again.
    child.stdout.pause();
    setTimeout(() => child.stdout.resume(), 2);
  });
  await once(child, "close");
  expect(counted.trim().split("\n")).toHaveLength(writers);
  const lines = parsed(output);
  const whole = lines.filter(({ long_line: part }) => part === undefined);
  expect(whole.filter(({ msg, line }) => String(msg) !== "x".repeat(Number(line) * 40))).toEqual([]);
  const long = Map.groupBy(
    lines.filter(({ long_line: part }) => part !== undefined),
    ({ long_line: id }) => id,
  );
  const complete = [...long.values()].filter((parts) => parts.length === parts[0]!.parts);
  expect(complete.length).toBeGreaterThan(10);
  for (const parts of complete) {
    expect(parts.every(({ audit }) => audit === true)).toBe(true);
    const line = JSON.parse(parts.map(({ text }) => text).join(""));
    expect(line).toMatchObject({ audit: true, msg: "a long line", long: 'ü"'.repeat(4000) });
  }
});
