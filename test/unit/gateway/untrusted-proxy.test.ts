import { expect, test } from "vitest";
import { createUntrustedProxyNotice } from "../../../src/gateway/address.ts";
import { createLogger } from "../../../src/telemetry/log.ts";

// Guarantee: a forgotten trust_proxy is noticed, and cannot fill the log.
test("each request is counted, and the log warns once an hour, naming the proxy", () => {
  const lines: string[] = [];
  let counted = 0;
  let nowMs = 0;
  const log = createLogger("info", { write: (line) => void lines.push(line) });
  const note = createUntrustedProxyNotice(
    log,
    () => counted++,
    () => nowMs,
  );
  for (let n = 0; n < 1000; n++) note("10.0.0.7");
  expect(counted).toBe(1000);
  expect(lines.map((line) => JSON.parse(line))).toMatchObject([{ level: "warn", peer: "10.0.0.7" }]);
  nowMs += 3_600_000;
  note("10.0.0.8");
  expect(lines).toHaveLength(2);
});
