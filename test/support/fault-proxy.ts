import { once } from "node:events";
import { connect, createServer, type Server, type Socket } from "node:net";
import { setImmediate as nextTick, setTimeout as pause } from "node:timers/promises";
import { holdPort } from "./held-port.ts";
import { type Command, createCommandReader } from "./resp.ts";

/** Behaviour of all connections until it is changed. */
export interface Faults {
  /** refuse: nobody listens, and what was open is reset; reset: accepted and reset at once. */
  connections: "serve" | "refuse" | "reset";
  /** Everything is read and nothing comes out. A connection that lost a byte so stays dead, as TCP would have it. */
  blackHole: boolean;
  /** Commands wait and go on when it ends, even those of clients that have left: a stopped server's socket. */
  stall: boolean;
  /** Before each command and before each reply. */
  delayMs: number;
  /** Every byte goes on its own, both ways. */
  splitBytes: boolean;
}

/**
 * Faults of one command.
 * drop_reply: it runs, and nothing comes back on its connection any more;
 * reset_before: it never arrives, the connection is reset; reset_after: it runs, then the connection is reset;
 * detain: the connection is reset at once, and the command arrives when it is released.
 */
export type StrikeKind = "drop_reply" | "reset_before" | "reset_after" | "detain";

export interface Strike {
  /** Settles once a command was hit. */
  struck: Promise<void>;
  /** Lets a detained command go, and waits until Redis has answered it. */
  release(): Promise<void>;
}

/** Commands that a breaker's probe and a new connection send in the background. */
const BACKGROUND = new Set([
  "probe",
  "info",
  "hset",
  "hsetnx",
  "hget",
  "hello",
  "auth",
  "client",
  "select",
  "ping",
  "hmget",
  "xrevrange",
]);
const HEALTHY: Readonly<Faults> = {
  connections: "serve",
  blackHole: false,
  stall: false,
  delayMs: 0,
  splitBytes: false,
};

interface PendingStrike {
  kind: StrikeKind;
  label: string;
  hit: () => void;
  released: Promise<void>;
  answered: () => void;
}

/** Strikes that have not hit yet. */
function createStrikes() {
  const pending: PendingStrike[] = [];
  return {
    add(kind: StrikeKind, label: string): Strike {
      const hit = Promise.withResolvers<void>();
      const released = Promise.withResolvers<void>();
      const answered = Promise.withResolvers<void>();
      pending.push({ kind, label, hit: hit.resolve, released: released.promise, answered: answered.resolve });
      return {
        struck: hit.promise,
        release() {
          released.resolve();
          return answered.promise;
        },
      };
    },
    take(label: string): PendingStrike | undefined {
      const at = pending.findIndex((strike) => strike.label === label);
      return at < 0 ? undefined : pending.splice(at, 1)[0];
    },
  };
}

/** A TCP proxy in front of Redis that can be made to fail in every way a network can, while it runs. */
export async function startFaultProxy(targetPort: number) {
  let faults: Faults = { ...HEALTHY };
  let target = targetPort;
  let stalled = Promise.withResolvers<void>();
  stalled.resolve();
  const links = new Set<Link>();
  const counts = new Map<string, number>();
  const strikes = createStrikes();
  let connections = 0;
  const steering: Steering = {
    faults: () => faults,
    stalled: () => stalled.promise,
    takeStrike: strikes.take,
    count: ({ label, items }) => void counts.set(label, (counts.get(label) ?? 0) + Math.max(1, items.length)),
  };
  const server: Server = createServer({ noDelay: true }, (client) => {
    connections++;
    if (faults.connections !== "serve") return resetAtOnce(client);
    const link = openLink(client, target, steering);
    links.add(link);
    client.once("close", () => links.delete(link));
  });
  // Held, so that "refuse" is refused: nobody else may listen there meanwhile.
  const { port, release } = await holdPort();
  const listen = async (): Promise<void> => {
    server.listen(port, "127.0.0.1");
    await once(server, "listening");
  };
  await listen();

  async function steer(changes: Partial<Faults>): Promise<void> {
    faults = { ...faults, ...changes };
    if (changes.stall === true) stalled = Promise.withResolvers<void>();
    if (!faults.stall) stalled.resolve();
    if (faults.connections !== "serve") for (const link of links) link.reset();
    if (faults.connections === "refuse" && server.listening) server.close();
    if (faults.connections !== "refuse" && !server.listening) await listen();
  }

  return {
    url: `redis://127.0.0.1:${port}`,
    port,
    steer,
    /** Everything as at the start; connections that lost bytes stay dead. */
    heal: () => steer(HEALTHY),
    /** From now on another server is behind this address; connections to the one before are reset. */
    pointTo(port: number): void {
      target = port;
      for (const link of links) link.reset();
    },
    /** Hits the next command of that label, with all its items: a script's name, or a Redis command in small letters. */
    strike: strikes.add,
    /** How many commands of that label have arrived; of a script, how many items. */
    count: (label: string): number => counts.get(label) ?? 0,
    /** How many commands, or items of scripts, have arrived on behalf of requests. */
    foreground: (): number =>
      [...counts].reduce((sum, [label, count]) => sum + (BACKGROUND.has(label) ? 0 : count), 0),
    /** How many connections were made so far. */
    connections: (): number => connections,
    async stop(): Promise<void> {
      stalled.resolve();
      for (const link of links) link.reset();
      if (server.listening) {
        server.close();
        await once(server, "close");
      }
      release();
    },
  };
}

function resetAtOnce(client: Socket): void {
  client.on("error", () => undefined);
  client.resetAndDestroy();
}

interface Link {
  reset(): void;
}

/** A link's hold on its proxy. */
interface Steering {
  faults(): Faults;
  stalled(): Promise<void>;
  takeStrike(label: string): PendingStrike | undefined;
  count(command: Command): void;
}

/** One client's connection and the one to Redis behind it. */
function openLink(client: Socket, targetPort: number, steering: Steering): Link {
  const { faults } = steering;
  const target = connect({ port: targetPort, host: "127.0.0.1", noDelay: true });
  const read = createCommandReader();
  /** Bytes were lost: nothing passes any more. */
  let dead = false;
  let mute = false;
  let commands: Promise<void> = Promise.resolve();
  let replies: Promise<void> = Promise.resolve();

  const reset = (): void => {
    client.resetAndDestroy();
    target.end();
  };

  async function forward(command: Command): Promise<void> {
    if (faults().blackHole) dead = true;
    if (dead) return;
    const strike = steering.takeStrike(command.label);
    await steering.stalled();
    if (faults().delayMs > 0) await pause(faults().delayMs);
    if (!strike) return write(target, command.bytes, faults().splitBytes);
    mute = true;
    await hit(client, target, command.bytes, strike);
    if (strike.kind !== "drop_reply") reset();
    strike.hit();
  }

  let isKnown = false;
  client.on("data", (chunk) => {
    // The port may have been the generator's of another test, whose gateway still polls it.
    if (!isKnown && chunk[0] !== "*".charCodeAt(0)) return reset();
    isKnown = true;
    for (const command of read(Buffer.from(chunk))) {
      steering.count(command);
      commands = commands.then(() => forward(command));
    }
  });
  target.on("data", (chunk) => {
    if (faults().blackHole) dead = true;
    if (dead || mute) return;
    replies = replies.then(async () => {
      if (faults().delayMs > 0) await pause(faults().delayMs);
      await write(client, Buffer.from(chunk), faults().splitBytes);
    });
  });
  // Data that a client sent before it left still arrives, as it does from a kernel's buffer.
  client.on("close", () => void commands.then(() => target.end()));
  target.on("close", () => {
    if (!dead) void replies.then(() => client.resetAndDestroy());
  });
  for (const socket of [client, target]) socket.on("error", () => undefined);
  return { reset };
}

/** Does to a command what its strike says, up to the end of its connection. */
async function hit(client: Socket, target: Socket, bytes: Buffer, strike: PendingStrike): Promise<void> {
  if (strike.kind === "detain") {
    client.resetAndDestroy();
    strike.hit();
    await strike.released;
  }
  if (strike.kind === "reset_before") return;
  const answer = once(target, "data").catch(() => undefined);
  target.write(bytes);
  await answer;
  strike.answered();
}

/** Writes to a socket as long as it lives; `split`: every byte goes on its own. */
export async function write(socket: Socket, bytes: Buffer, split: boolean): Promise<void> {
  if (!split) {
    if (!socket.destroyed) socket.write(bytes);
    return;
  }
  for (let at = 0; at < bytes.length && !socket.destroyed; at++) {
    socket.write(bytes.subarray(at, at + 1));
    await nextTick();
  }
}
