import { once } from "node:events";
import { type AddressInfo, connect } from "node:net";
import { expect, test } from "vitest";
import { createAdminServer } from "../../../src/admin/admin-server.ts";
import { createLogger } from "../../../src/telemetry/log.ts";

/** An admin server that is served by these, and says what it logs. */
function givenAdminServer(serve: () => Promise<never>) {
  const lines: string[] = [];
  const server = createAdminServer({
    metricsPage: serve,
    notReady: () => undefined,
    config: () => ({}),
    access: { check: () => ({ outcome: "allowed" }) },
    refusals: { signIn: () => undefined },
    console: { owns: (path) => path === "/console/", serve },
    setLevel: () => {
      throw new Error("too many open files");
    },
    api: { owns: () => false, serve },
    log: createLogger("error", { write: (line) => void lines.push(line) }),
  });
  return { server, lines };
}

test("what fails on the admin port is answered and logged, and ends nothing", async () => {
  const failing = () => Promise.reject(new Error("too many open files"));
  const { server: admin, lines } = givenAdminServer(failing);
  admin.listen(0, "127.0.0.1");
  await once(admin, "listening");
  const url = `http://127.0.0.1:${(admin.address() as AddressInfo).port}`;
  const level = { method: "PUT", body: "debug" };
  for (const [path, init] of [["/console/"], ["/log-level", level], ["/metrics"]] as const) {
    const answer = await fetch(url + path, init);
    expect([answer.status, (await answer.text()).includes("open files")], path).toEqual([500, false]);
  }
  expect(lines.filter((line) => line.includes("too many open files"))).toHaveLength(3);
  expect((await fetch(`${url}/livez`)).status).toBe(200);
  admin.close();
});

// Node looks for requests that arrive too slowly every 30 s by default, and ends none of them before.
test("a request that does not arrive is ended within a second of its time", () => {
  const { server } = givenAdminServer(() => Promise.reject(new Error("not called")));
  expect(server).toMatchObject({ requestTimeout: 10_000, connectionsCheckingInterval: 1000 });
});

test("an address that opens more connections than there are keeps no other one from its own", async () => {
  const { server } = givenAdminServer(() => Promise.reject(new Error("not called")));
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  const { port } = server.address() as AddressInfo;
  const open = (localAddress: string) => connect({ host: "127.0.0.1", port, localAddress });
  const probe = async (socket: ReturnType<typeof open>) => {
    socket.write("GET /livez HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n");
    const [answer] = await Promise.race([once(socket, "data"), once(socket, "close")]);
    return String(answer).slice(0, 12);
  };
  const prober = open("127.0.0.1");
  expect(await probe(prober)).toBe("HTTP/1.1 200");
  const others = [];
  for (let count = 0; count < 100; count++) {
    const other = open("127.0.0.2").on("error", () => undefined);
    others.push(other);
    expect(await probe(other)).toBe("HTTP/1.1 200");
  }
  expect(await probe(prober)).toBe("HTTP/1.1 200");
  for (const socket of [prober, ...others]) socket.destroy();
  server.close();
});
