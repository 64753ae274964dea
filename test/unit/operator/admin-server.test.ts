import { once } from "node:events";
import type { AddressInfo } from "node:net";
import { expect, test } from "vitest";
import { createAdminServer } from "../../../src/operator/admin-server.ts";
import { createLogger } from "../../../src/telemetry/log.ts";

test("what fails on the admin port is answered and logged, and ends nothing", async () => {
  const lines: string[] = [];
  const failing = () => Promise.reject(new Error("too many open files"));
  const admin = createAdminServer({
    metricsPage: failing,
    notReady: () => undefined,
    config: () => ({}),
    access: { check: () => ({ outcome: "allowed" }) },
    console: { owns: (path) => path === "/console/", serve: failing },
    logLevel: failing,
    management: { owns: () => false, serve: failing },
    log: createLogger("error", { write: (line) => void lines.push(line) }),
  });
  admin.listen(0, "127.0.0.1");
  await once(admin, "listening");
  const url = `http://127.0.0.1:${(admin.address() as AddressInfo).port}`;
  for (const path of ["/console/", "/log-level", "/metrics"]) {
    const answer = await fetch(url + path);
    expect([answer.status, (await answer.text()).includes("open files")], path).toEqual([500, false]);
  }
  expect(lines.filter((line) => line.includes("too many open files"))).toHaveLength(3);
  expect((await fetch(`${url}/livez`)).status).toBe(200);
  admin.close();
});
