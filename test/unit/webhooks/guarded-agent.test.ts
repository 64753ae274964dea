import { once } from "node:events";
import { createServer } from "node:http";
import { type AddressInfo, connect, type Socket } from "node:net";
import { expect, onTestFinished, test } from "vitest";
import { type EgressPolicy, type Network, ownNetwork } from "../../../src/webhooks/guarded-agent.ts";
import { givenDns, type Zone } from "../../support/dns-server.ts";
import { innerHosts } from "../../support/inner-addresses.ts";
import { soon } from "../../support/soon.ts";
import {
  answered,
  CERTIFICATE,
  givenReceiver,
  givenSender,
  LOOPBACK,
  messageTo,
  POLICY,
} from "./receiver.ts";

const PUBLIC = "93.184.216.34";
const NOT_PUBLIC = { outcome: "failed", reason: "the address must lead to a public address" };

/** The gateway's own network, on the DNS of the test, that notes what it connects to, and reaches nothing. */
async function givenNetwork(zone: Zone) {
  const dns = await givenDns(zone);
  const own = ownNetwork([dns.address]);
  const connectedTo: string[] = [];
  const network: Network = {
    resolve: own.resolve,
    connect: (_options, addresses) => {
      connectedTo.push(...addresses);
      return Promise.reject(Object.assign(new Error("stub"), { code: "ECONNREFUSED" }));
    },
  };
  return { network, connectedTo, dns, own };
}

test("no message connects to any form of an inner address", async () => {
  const { network, connectedTo } = await givenNetwork({});
  const sender = givenSender(POLICY, network);
  const hosts = innerHosts();
  const results = await Promise.all(hosts.map((host) => sender.send(messageTo(`https://${host}/`))));
  expect(results.map(({ outcome }) => outcome)).toEqual(hosts.map(() => "failed"));
  expect(connectedTo).toEqual([]);
});

test.each([
  ["an inner address", ["10.0.0.1"]],
  ["a good address and an inner one", [PUBLIC, "10.0.0.1"]],
  ["an inner address and a good one", ["127.0.0.1", PUBLIC]],
  ["a good IPv4 address and an inner IPv6 one", [PUBLIC, "::1"]],
  ["a mapped inner address", ["::ffff:a00:1"]],
  ["an inner address behind NAT64", ["64:ff9b::a9fe:a9fe"]],
  ["the metadata address", ["169.254.169.254"]],
])("a name with %s is not connected to", async (_, addresses) => {
  const { network, connectedTo } = await givenNetwork({ "hooks.example.com": [addresses] });
  expect(await givenSender(POLICY, network).send(messageTo("https://hooks.example.com/"))).toEqual(
    NOT_PUBLIC,
  );
  expect(connectedTo).toEqual([]);
});

test("a name with public addresses only is connected to at these", async () => {
  const { network, connectedTo } = await givenNetwork({ "hooks.example.com": [[PUBLIC, "2606:4700::1111"]] });
  const result = await givenSender(POLICY, network).send(messageTo("https://hooks.example.com/"));
  expect(result).toEqual({ outcome: "failed", reason: "the connection was refused" });
  expect(connectedTo).toEqual([PUBLIC, "2606:4700::1111"]);
});

// Guarantee: DNS rebinding. The name is asked for once per connection, and what was judged is what is connected to.
test("a name that changes to an inner address is never connected to there", async () => {
  const { network, connectedTo, dns } = await givenNetwork({
    "hooks.example.com": [[PUBLIC], ["127.0.0.1"]],
  });
  const sender = givenSender(POLICY, network);
  const send = () => sender.send(messageTo("https://hooks.example.com/"));
  expect(await send()).toMatchObject({ reason: "the connection was refused" });
  expect(dns.queries("hooks.example.com")).toBe(1);
  expect(await send()).toEqual(NOT_PUBLIC);
  expect(await send()).toEqual(NOT_PUBLIC);
  expect(connectedTo).toEqual([PUBLIC]);
});

test("a connection that ends up at an inner peer is closed before a byte is sent", async () => {
  for (const scheme of ["http", "https"] as const) {
    const receiver = await givenReceiver(answered("200 OK"), { scheme });
    const network: Network = {
      resolve: async () => [PUBLIC],
      connect: () =>
        new Promise((resolve) => {
          const socket: Socket = connect(receiver.port, "127.0.0.1", () => resolve(socket));
        }),
    };
    const result = await givenSender(POLICY, network).send(messageTo("https://hooks.example.com/"));
    expect(result).toEqual(NOT_PUBLIC);
    expect(receiver.bytes()).toBe(0);
    await soon(() => expect(receiver.sockets.size).toBe(0));
  }
});

// Such a message failed with "the address must lead to a public address".
test("a receiver that closes the connection at once is not taken for an inner one", async () => {
  const receiver = await givenReceiver(answered("200 OK"));
  const network: Network = {
    resolve: async () => [PUBLIC],
    connect: async () => {
      const socket = connect(receiver.port, "127.0.0.1");
      await once(socket, "connect");
      return socket.destroy();
    },
  };
  expect(await givenSender(POLICY, network).send(messageTo("https://hooks.example.com/"))).toEqual({
    outcome: "failed",
    reason: "the connection was closed before an answer",
  });
});

test("a name in an allowed network is taken with plain http, and beside it only what is public", async () => {
  const receiver = await givenReceiver(answered("200 OK"));
  const { own } = await givenNetwork({
    "inside.example.com": [["127.0.0.1"]],
    "elsewhere.example.com": [["10.0.0.1"]],
    "mixed.example.com": [["127.0.0.1", PUBLIC]],
    "public.example.com": [[PUBLIC]],
  });
  const sender = givenSender(LOOPBACK, own);
  const send = (name: string) => sender.send(messageTo(`http://${name}:${receiver.port}/`));
  expect(await send("inside.example.com")).toMatchObject({ outcome: "delivered", status: 200 });
  expect(await send("elsewhere.example.com")).toEqual(NOT_PUBLIC);
  expect(await send("mixed.example.com")).toEqual({ outcome: "failed", reason: "the address must be https" });
  expect(await send("public.example.com")).toEqual({
    outcome: "failed",
    reason: "the address must be https",
  });
  expect(receiver.requests).toHaveLength(1);
});

// Where one of two addresses is down, nothing was delivered.
test("a name whose first or last address does not answer is delivered to at the other one", async () => {
  const receiver = await givenReceiver(answered("200 OK"));
  const { own } = await givenNetwork({
    "first.example.com": [["127.0.0.2", "127.0.0.1"]],
    "last.example.com": [["127.0.0.1", "127.0.0.2"]],
  });
  const sender = givenSender(LOOPBACK, own);
  for (const name of ["first", "last"])
    expect(await sender.send(messageTo(`http://${name}.example.com:${receiver.port}/`)), name).toMatchObject({
      outcome: "delivered",
    });
});

test("connections that a policy has allowed are not used under another one", async () => {
  const receiver = await givenReceiver(answered("200 OK"));
  const { own } = await givenNetwork({ "inside.example.com": [["127.0.0.1"]] });
  let policy: EgressPolicy = LOOPBACK;
  const sender = givenSender(() => policy, own);
  // By name, so that nothing but the connection can refuse it.
  const send = () => sender.send(messageTo(`http://inside.example.com:${receiver.port}/`));
  expect(await send()).toMatchObject({ outcome: "delivered" });
  policy = { ...POLICY, allowNetworks: ["10.0.0.0/8"] };
  expect(await send()).toEqual(NOT_PUBLIC);
  expect(receiver.requests).toHaveLength(1);
});

test("a message in flight is delivered though the policy changes meanwhile, and its connection ends then", async () => {
  const held: Socket[] = [];
  const receiver = await givenReceiver((socket) => void held.push(socket));
  let policy: EgressPolicy = LOOPBACK;
  const sender = givenSender(() => policy);
  const sent = sender.send(messageTo(receiver.url));
  await soon(() => expect(held).toHaveLength(1));
  policy = { ...LOOPBACK, allowPorts: [8443] };
  const next = sender.send(messageTo(receiver.url));
  await soon(() => expect(held).toHaveLength(2));
  for (const socket of held) answered("200 OK")(socket);
  expect([await sent, await next]).toMatchObject([{ outcome: "delivered" }, { outcome: "delivered" }]);
  await soon(() => expect(receiver.sockets.size).toBe(1));
});

test("a name without an address, and a name server that is away, are failures in words", async () => {
  const { own } = await givenNetwork({ "empty.example.com": [[]] });
  const sender = givenSender(POLICY, own);
  for (const name of ["empty.example.com", "unknown.example.com"]) {
    const result = await sender.send(messageTo(`https://${name}/`));
    expect(result).toEqual({ outcome: "failed", reason: "no address was found for its name" });
  }
});

test("certificates are verified, by the name and by who has signed them", async () => {
  const receiver = await givenReceiver(answered("200 OK"), { scheme: "https" });
  const { own } = await givenNetwork({
    "hooks.example.com": [["127.0.0.1"]],
    "api.localhost": [["127.0.0.1"]],
  });
  const url = (host: string): string => `https://${host}:${receiver.port}/`;
  const trusting = givenSender(LOOPBACK, { ...own, ca: CERTIFICATE.cert });
  expect(await trusting.send(messageTo(url("127.0.0.1")))).toMatchObject({ outcome: "delivered" });
  expect(await trusting.send(messageTo(url("hooks.example.com")))).toEqual({
    outcome: "failed",
    reason: "its certificate is not valid (ERR_TLS_CERT_ALTNAME_INVALID)",
  });
  expect(await givenSender(LOOPBACK, own).send(messageTo(url("127.0.0.1")))).toMatchObject({
    outcome: "failed",
    reason: expect.stringMatching(/^its certificate is not valid/),
  });
  expect(receiver.requests).toHaveLength(1);
});

/** An egress proxy that tunnels where it is asked to, or refuses. It notes what for. */
async function givenProxy(tunnelTo: number | undefined) {
  const targets: string[] = [];
  const sockets = new Set<Socket>();
  const server = createServer((request, response) => {
    targets.push(`${request.method} ${request.url}`);
    response.end("by the proxy");
  });
  server.on("connect", (request, socket: Socket) => {
    targets.push(`CONNECT ${request.url}`);
    socket.on("error", () => undefined);
    if (tunnelTo === undefined) return void socket.end("HTTP/1.1 403 Forbidden\r\n\r\n");
    const far = connect(tunnelTo, "127.0.0.1", () => {
      socket.write("HTTP/1.1 200 Connection established\r\n\r\n");
      far.pipe(socket).pipe(far);
    });
    far.on("error", () => undefined);
    sockets.add(far).add(socket);
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  onTestFinished(() => {
    for (const socket of sockets) socket.destroy();
    server.closeAllConnections();
    server.close();
  });
  return { targets, url: `http://127.0.0.1:${(server.address() as AddressInfo).port}` };
}

test("with an egress proxy, it resolves the names, and addresses as text are still judged here", async () => {
  const receiver = await givenReceiver(answered("200 OK"), { scheme: "https" });
  const proxy = await givenProxy(receiver.port);
  const { network, connectedTo } = await givenNetwork({});
  const sender = givenSender({ ...POLICY, proxyUrl: proxy.url }, { ...network, ca: CERTIFICATE.cert });
  expect(await sender.send(messageTo("https://169.254.169.254/"))).toEqual(NOT_PUBLIC);
  expect(await sender.send(messageTo("https://vault.internal/"))).toEqual(NOT_PUBLIC);
  expect(proxy.targets).toEqual([]);
  const result = await sender.send(messageTo("https://hooks.example.com/"));
  expect(proxy.targets).toEqual(["CONNECT hooks.example.com:443"]);
  expect(result).toEqual({
    outcome: "failed",
    reason: "its certificate is not valid (ERR_TLS_CERT_ALTNAME_INVALID)",
  });
  expect(connectedTo).toEqual([]);
});

test("through an egress proxy a message is delivered, in a tunnel or in plain", async () => {
  const receiver = await givenReceiver(answered("200 OK"), { scheme: "https" });
  const proxy = await givenProxy(receiver.port);
  const { own } = await givenNetwork({});
  const sender = givenSender({ ...LOOPBACK, proxyUrl: proxy.url }, { ...own, ca: CERTIFICATE.cert });
  expect(await sender.send(messageTo(receiver.url))).toMatchObject({ outcome: "delivered" });
  expect(receiver.requests).toHaveLength(1);
  const plain = await sender.send(messageTo("http://127.0.0.1:7/a"));
  expect(plain).toEqual({ outcome: "delivered", status: 200, answer: "by the proxy" });
  expect(proxy.targets).toEqual([`CONNECT 127.0.0.1:${receiver.port}`, "POST http://127.0.0.1:7/a"]);
});

// Guarantee: from the reload on that names a proxy, nothing goes around it.
test("an egress proxy that is set meanwhile gets the next message", async () => {
  const receiver = await givenReceiver(answered("200 OK"));
  const proxy = await givenProxy(undefined);
  let policy: EgressPolicy = LOOPBACK;
  const sender = givenSender(() => policy);
  const send = () => sender.send(messageTo(receiver.url));
  expect(await send()).toMatchObject({ outcome: "delivered", answer: "" });
  policy = { ...LOOPBACK, proxyUrl: proxy.url };
  expect(await send()).toMatchObject({ outcome: "delivered", answer: "by the proxy" });
  expect(receiver.requests).toHaveLength(1);
});

test("an unasked `100 Continue` through the tunnel of an egress proxy is skipped", async () => {
  const ok = answered("200 OK");
  const receiver = await givenReceiver(
    (socket) => {
      socket.write("HTTP/1.1 100 Continue\r\n\r\n");
      ok(socket);
    },
    { scheme: "https" },
  );
  const proxy = await givenProxy(receiver.port);
  const { own } = await givenNetwork({});
  const sender = givenSender({ ...LOOPBACK, proxyUrl: proxy.url }, { ...own, ca: CERTIFICATE.cert });
  expect(await sender.send(messageTo(receiver.url))).toMatchObject({ outcome: "delivered" });
});

test("a proxy that refuses, and one that is away, are failures in words", async () => {
  const proxy = await givenProxy(undefined);
  const send = (proxyUrl: string) =>
    givenSender({ ...POLICY, proxyUrl }).send(messageTo("https://hooks.example.com/"));
  expect(await send(proxy.url)).toEqual({ outcome: "failed", reason: "the egress proxy refused it" });
  expect(await send("http://127.0.0.1:1")).toEqual({
    outcome: "failed",
    reason: "the connection was refused",
  });
});
