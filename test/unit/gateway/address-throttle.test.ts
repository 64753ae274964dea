import { once } from "node:events";
import { connect, type Socket } from "node:net";
import { afterEach, beforeEach, expect, test, vi } from "vitest";
import { drainBody } from "../../../src/gateway/body.ts";
import { createAddressThrottle, UNREAD_MAX } from "../../../src/gateway/connections/connection-reads.ts";
import { until } from "../../support/until.ts";
import { givenListener } from "./listener-stage.ts";

const CONNECTIONS = 20;
const ATTACKER = "127.0.0.2";
const HONEST = "127.0.0.1";

/** Connections that have brought something, by the address of the client. */
let served: { address: string; port: number }[];
/** Ports of the clients whose requests have come whole. */
let ended: number[];
/** Stacks of the errors that requests ended with. */
let aborted: string[];
let stage: Awaited<ReturnType<typeof givenListener>>;
let clients: Socket[];
/** All clients are trusted proxies. */
let trusted: boolean;

beforeEach(async () => {
  served = [];
  ended = [];
  aborted = [];
  clients = [];
  trusted = false;
  const peer = ({ remoteAddress = "" }: Socket) => ({ address: remoteAddress, trusted });
  stage = await givenListener(
    {},
    ({ req, res }, connections) => {
      const { remoteAddress: address = "", remotePort: port = 0 } = req.socket;
      served.push({ address, port });
      req.on("error", ({ stack }) => aborted.push(stack ?? ""));
      if (req.headers["x-answer"]) res.end();
      if (req.headers["transfer-encoding"]) connections.pauseUntilBodyRead(req);
      const account = req.headers["x-uploads-for"];
      if (typeof account === "string") connections.uploadStarted(req, account);
      req.on("end", () => void ended.push(port));
      const bodyRead = (socket: Socket, bytes: number): void => connections.bodyRead(socket, bytes);
      // As answers, which go out at the end of a tick.
      setImmediate(() => drainBody(req, bodyRead, () => connections.endAfterResponse(res)));
      return undefined;
    },
    peer,
  );
});
afterEach(() => {
  vi.useRealTimers();
  for (const client of clients) client.destroy();
});

async function connected(localAddress: string): Promise<Socket> {
  const client = connect({ host: "127.0.0.1", port: stage.port, localAddress, noDelay: true });
  client.on("error", () => undefined);
  clients.push(client);
  await once(client, "connect");
  return client;
}

/** As the server sees them once each connection has been accepted. */
const accepted = () => until(() => stage.connections.counts().open === clients.length, "all to be accepted");

const from = (address: string): number =>
  new Set(served.filter((each) => each.address === address).map(({ port }) => port)).size;

/** Ticks of the event loop, as many as whatever was sent needs to be read. */
async function ticks(count = 50): Promise<void> {
  for (let n = 0; n < count; n++) await new Promise((resolve) => setImmediate(resolve));
}

const PIPELINED = "GET / HTTP/1.1\r\n\r\n".repeat(50);
const PIECES = `POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n${"1\r\na\r\n".repeat(4000)}`;

// Guarantee: one address that sends much on many connections keeps nobody else waiting for all of them.
test.each([
  ["pipelines", PIPELINED],
  ["sends bodies in small pieces", PIECES],
])("an address that %s on many connections is read in turns with others", async (_what, bytes) => {
  const flood = [];
  while (flood.length < CONNECTIONS) flood.push(await connected(ATTACKER));
  const honest = await connected(HONEST);
  await accepted();
  for (const client of flood) client.write(bytes);
  honest.write("GET / HTTP/1.1\r\n\r\n");
  await until(() => from(HONEST) === 1, "the honest request");
  expect(from(ATTACKER), "connections that were read before the rest").toBeLessThan(CONNECTIONS / 2);
  await until(() => from(ATTACKER) === CONNECTIONS, "all others, in their turn");
});

// Guarantee: customers behind one address, such as a proxy's, are throttled for their own uploads.
test.each([
  ["another account's", "other", true],
  ["its own other", "dripping", false],
])(
  "while an account is throttled for its upload, %s upload from the same address goes on or not",
  async (_whose, account, goesOn) => {
    vi.useFakeTimers({ toFake: ["setTimeout"] });
    const started = async (owner: string): Promise<Socket> => {
      const client = await connected(HONEST);
      const before = served.length;
      client.write(`POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\nX-Uploads-For: ${owner}\r\n\r\n`);
      while (served.length === before) await ticks(1);
      await ticks();
      return client;
    };
    const dripping = await started("dripping");
    const other = await started(account);
    dripping.write("1\r\na\r\n".repeat(9000));
    while (stage.connections.counts().rests === 0) await ticks(1);
    other.write("5\r\nabcde\r\n");
    await ticks();
    other.write("0\r\n\r\n");
    await ticks(500);
    // No rest ends: time stands still.
    expect(ended.includes(other.localPort ?? 0)).toBe(goesOn);
    if (goesOn) {
      served = [];
      other.write("GET / HTTP/1.1\r\n\r\n");
      while (from(HONEST) === 0) await ticks(1);
    }
  },
);

// Guarantee: a customer is not throttled for strangers behind the same address, unless a trusted proxy sends them on its connections.
test.each([
  [false, true],
  [true, false],
])(
  "after an upload, a connection (of a trusted proxy: %s) is read while its address rests: %s",
  async (proxy, isRead) => {
    vi.useFakeTimers({ toFake: ["setTimeout"] });
    trusted = proxy;
    const customer = await connected(ATTACKER);
    customer.write(
      "POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\nX-Uploads-For: a\r\nX-Answer: now\r\n\r\n1\r\na\r\n0\r\n\r\n",
    );
    while (ended.length === 0) await ticks();
    await ticks();
    const stranger = await connected(ATTACKER);
    stranger.write(PIPELINED.repeat(2));
    while (stage.connections.counts().rests === 0) await ticks(1);
    served = [];
    customer.write("GET / HTTP/1.1\r\n\r\n");
    await ticks();
    expect(served.some(({ port }) => port === customer.localPort)).toBe(isRead);
  },
);

// Guarantee: whoever comes to an address that others flood with new connections is not behind all of these.
test("of the connections that an address opens while it rests, the newest is read first, after those in use", async () => {
  vi.useFakeTimers({ toFake: ["setTimeout"] });
  const inUse = await connected(ATTACKER);
  inUse.write("GET / HTTP/1.1\r\nX-Answer: now\r\n\r\n");
  while (from(ATTACKER) < 1) await ticks();
  const stranger = await connected(ATTACKER);
  stranger.write(PIPELINED.repeat(2));
  while (stage.connections.counts().rests === 0) await ticks(1);
  await ticks();
  const opened: Socket[] = [];
  while (opened.length < 5) {
    opened.push(await connected(ATTACKER));
    opened.at(-1)!.write("GET / HTTP/1.1\r\n\r\n");
  }
  inUse.write("GET / HTTP/1.1\r\n\r\n");
  await accepted();
  await ticks();
  served = [];
  while (served.length < 6) {
    vi.advanceTimersByTime(1000);
    await ticks();
  }
  expect(served.map(({ port }) => port)).toEqual([inUse, ...opened.reverse()].map((each) => each.localPort));
});

test("requests that come one after the other let nobody rest", async () => {
  // No rest would end.
  vi.useFakeTimers({ toFake: ["setTimeout"] });
  const many = [];
  while (many.length < 100) many.push(await connected(ATTACKER));
  for (const client of many) client.write("GET / HTTP/1.1\r\n\r\n");
  while (from(ATTACKER) < 100) await ticks(1);
});

// Guarantee: whoever opens connections again and again rests as those do that keep theirs.
test("a connection that is opened while its address rests is read when the rest is over", async () => {
  vi.useFakeTimers({ toFake: ["setTimeout"] });
  const first = await connected(ATTACKER);
  first.write(PIPELINED.repeat(2));
  while (from(ATTACKER) < 1) await ticks();
  const second = await connected(ATTACKER);
  second.write("GET / HTTP/1.1\r\n\r\n");
  const honest = await connected(HONEST);
  honest.write("GET / HTTP/1.1\r\n\r\n");
  while (from(HONEST) < 1) await ticks();
  await ticks();
  expect(from(ATTACKER)).toBe(1);
  while (from(ATTACKER) < 2) {
    vi.advanceTimersByTime(1000);
    await ticks();
  }
});

// Guarantee: connections that are opened and left again do not pile up unread.
test("of the connections that an address opens while it rests, the oldest are ended for one too many", async () => {
  vi.useFakeTimers({ toFake: ["setTimeout"] });
  const first = await connected(ATTACKER);
  first.write(PIPELINED.repeat(2));
  while (from(ATTACKER) < 1) await ticks();
  const honest = await connected(HONEST);
  const opened = [];
  while (opened.length < UNREAD_MAX + 3) opened.push(await connected(ATTACKER));
  while (stage.ended.length < 3) await ticks();
  expect(stage.ended).toEqual(new Array(3).fill("connections_per_address"));
  while (!opened.slice(0, 3).every(({ closed }) => closed)) await ticks();
  expect([first, honest, ...opened.slice(3)].some(({ closed }) => closed)).toBe(false);
  expect(stage.connections.counts().open).toBe(UNREAD_MAX + 2);
  for (const client of opened.slice(3)) client.write("GET / HTTP/1.1\r\n\r\n");
  while (from(ATTACKER) < 1 + UNREAD_MAX) {
    vi.advanceTimersByTime(1000);
    await ticks();
  }
  expect(stage.ended).toHaveLength(3);
});

// Guarantee: many addresses that send much take no more of a tick than one does.
test("the rests of addresses that rest at the same time end one after the other", async () => {
  vi.useFakeTimers({ toFake: ["setTimeout", "performance"] });
  const ended: string[] = [];
  const throttle = createAddressThrottle({
    paused: () => undefined,
    resumed: (address) => ended.push(address),
  });
  const addresses = ["a", "b", "c"];
  const spend = (address: string): void => {
    for (let n = 0; n < 100; n++) throttle.pipelined(address);
  };
  for (const address of addresses) spend(address);
  await ticks();
  expect(ended).toEqual([]);
  vi.advanceTimersByTime(1000);
  for (let n = 1; n <= 3; n++) {
    const before = ended.length;
    while (ended.length === before) await ticks(1);
    expect(ended).toEqual(addresses.slice(0, n));
  }
  // Repeats of the first address cost a tick of 10 ms: the next one waits for some of them, too.
  spend("a");
  spend("b");
  await ticks();
  vi.advanceTimersByTime(1000);
  await ticks(1);
  expect(ended.slice(3)).toEqual(["a"]);
  spend("a");
  vi.advanceTimersByTime(10);
  await ticks();
  expect(ended.slice(3)).toEqual(["a"]);
  vi.advanceTimersByTime(39);
  await ticks();
  expect(ended.slice(3)).toEqual(["a"]);
  vi.advanceTimersByTime(1);
  await ticks();
  expect(ended.slice(3)).toEqual(["a", "b"]);
});

// Guarantee: of an address that sends small pieces behind heads, one read is taken apart in a tick, not one of each connection.
test.each(["new connections", "connections that have served requests"])(
  "behind heads of chunked bodies, %s are read in turns before anybody has counted the pieces",
  async (which) => {
    vi.useFakeTimers({ toFake: ["setTimeout"] });
    const flood: Socket[] = [];
    while (flood.length < CONNECTIONS) flood.push(await connected(ATTACKER));
    if (which !== "new connections") {
      for (const client of flood) client.write("GET / HTTP/1.1\r\nX-Answer: now\r\n\r\n");
      while (from(ATTACKER) < CONNECTIONS) await ticks();
      await ticks();
    }
    served = [];
    for (const client of flood) client.write(PIECES);
    while (from(ATTACKER) === 0) await ticks(1);
    await ticks();
    expect(from(ATTACKER)).toBe(1);
    // A small body costs next to nothing.
    const honest: Socket[] = [];
    while (honest.length < 10) honest.push(await connected(HONEST));
    for (const client of honest)
      client.write("POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n0\r\n\r\n");
    while (from(HONEST) < honest.length) await ticks();
  },
);

// Guarantee: the end of a connection that sends thousands of requests ahead does not keep others waiting.
test("requests that are given up with their connection are so without stacks of errors; others keep theirs", async () => {
  const { stackTraceLimit } = Error;
  const client = await connected(ATTACKER);
  client.write(PIPELINED.repeat(10));
  await until(() => aborted.length > 0, "the end of the connection");
  expect(stage.ended).toEqual(["pipelined_requests"]);
  expect(aborted.filter((stack) => stack.includes("\n    at "))).toEqual([]);
  expect(Error.stackTraceLimit).toBe(stackTraceLimit);
});
