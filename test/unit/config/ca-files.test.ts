import { rmSync, writeFileSync } from "node:fs";
import path from "node:path";
import { expect, test } from "vitest";
import { readConfig, requireLoaded } from "../../../src/config/config.ts";
import { LiveConfig } from "../../../src/config/live.ts";
import { selfSignedCertificate } from "../../../src/sandbox/generator/server.ts";
import { createLogger } from "../../../src/telemetry/log.ts";
import { createMetrics } from "../../../src/telemetry/metrics.ts";
import { givenFiles } from "./support.ts";

const CONFIG = "store: { tls_ca: ca.pem }\nupstream: { tls_ca: ca.pem }\n";

// Guarantee: a file of authorities that cannot be used is refused with its name, its setting and its line.
test.each([
  ["cannot be read: there is no such file; a relative path begins at the config file's folder", undefined],
  ["holds no certificate", "hello"],
  ["certificate 1 of 1 cannot be read", "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"],
])("an authority file that %s is refused", (words, text) => {
  const file = givenFiles({ "tollgate.yaml": CONFIG, ...(text === undefined ? {} : { "ca.pem": text }) });
  const ca = path.join(path.dirname(file), "ca.pem");
  const { problems } = readConfig({ env: {}, file });
  for (const setting of ["store.tls_ca", "upstream.tls_ca"]) {
    const problem = problems.find((one) => one.path === setting);
    expect(problem?.message).toContain(`${ca} `);
    expect(problem?.message).toContain(words);
    expect(problem?.line).toBeGreaterThan(0);
  }
});

test("new certificates of the upstream in the same file count after a reload; a bad file changes nothing", () => {
  const [first, second] = [selfSignedCertificate().cert, selfSignedCertificate().cert];
  const file = givenFiles({ "tollgate.yaml": "upstream: { tls_ca: ca.pem }", "ca.pem": first });
  const ca = path.join(path.dirname(file), "ca.pem");
  const log = createLogger("silent", { write: () => undefined });
  const loaded = requireLoaded(readConfig({ env: {}, file }));
  const live = new LiveConfig({ loaded, log, metrics: createMetrics() });
  expect(live.config().upstream.tlsCa).toBe(first.trim());
  writeFileSync(ca, second);
  expect(live.reload("test")).toBe("changed");
  expect(live.config().upstream.tlsCa).toBe(second.trim());
  rmSync(ca);
  expect(live.reload("test")).toBe("refused");
  expect(live.config().upstream.tlsCa).toBe(second.trim());
});

// Guarantee: the alert on expiry goes on while the connection to Redis trusts the old authorities, which it does until a restart.
test("new certificates of Redis in the same file wait for a restart, and are named as that", async () => {
  const [first, second] = [selfSignedCertificate().cert, selfSignedCertificate().cert];
  const file = givenFiles({ "tollgate.yaml": CONFIG, "ca.pem": first });
  const metrics = createMetrics();
  const log = createLogger("silent", { write: () => undefined });
  const live = new LiveConfig({ loaded: requireLoaded(readConfig({ env: {}, file })), log, metrics });
  writeFileSync(path.join(path.dirname(file), "ca.pem"), second);
  expect(live.reload("test")).toBe("changed");
  expect(live.config()).toMatchObject({
    store: { tlsCa: first.trim() },
    upstream: { tlsCa: second.trim() },
  });
  expect(live.describe().awaiting_restart).toEqual([
    { setting: "store.tls_ca (content)", file: expect.stringMatching(/^[\da-f]{16}$/) },
  ]);
});
