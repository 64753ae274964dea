import { once } from "node:events";
import { type AddressInfo, connect, createServer, type Server, type Socket } from "node:net";
import { join } from "node:path";
import { write } from "../support/fault-proxy.ts";
import {
  type Command,
  createCommandReader,
  createReplyReader,
  type Reply,
  type SentItem,
  scriptsBySha,
} from "../support/resp.ts";
import type { LinkEvent } from "./history.ts";

/** One item of a command: the history's line, and what it is given. */
export interface PassingItem extends LinkEvent {
  keys: readonly string[];
  args: readonly string[];
}

/** One command between a gateway and Redis, from its arrival on. What befalls it befalls all its items. */
export interface Passing {
  gateway: string;
  script: string;
  items: PassingItem[];
}

/**
 * freeze: neither this one nor any later one of the same direction passes on this connection, which stays open;
 * reset: it does not pass, both ends are reset; delayMs: it passes later, with all that come after it, even when the
 * sender has left by then.
 */
export type Action = "freeze" | "reset" | { delayMs: number } | undefined;

export interface Hooks {
  /** Before a command is forwarded. */
  command?(passing: Passing): Action;
  /** Before a reply is delivered. @param bytes the reply as Redis sent it */
  reply?(passing: Passing, bytes: Buffer): Action;
  /** Every byte goes on its own, both ways. */
  split?: boolean;
}

/** Verbs whose commands belong into the history. */
const RECORDED = new Set(["admit", "bind", "void", "observe"]);

export type RedisProxy = ReturnType<typeof createRedisProxy>;

/**
 * Stands between gateways and Redis, knows each command by its script and its request id, and does to it what
 * the hooks say.
 * @param root where the gateways' `lua/` lies
 */
export function createRedisProxy(targetPort: number, root: string) {
  const servers: Server[] = [];
  const links = new Set<Socket>();
  const events: PassingItem[] = [];
  const scripts = scriptsBySha(join(root, "lua"));
  let hooks: Hooks = {};
  let port = targetPort;

  /** @param nameOf made for each connection, and asked with each of its commands: whose it is */
  async function open(nameOf: () => (command: Command) => string): Promise<number> {
    const server = createServer({ noDelay: true }, (client) => {
      links.add(client);
      client.once("close", () => links.delete(client));
      const gatewayOf = nameOf();
      openLink(client, port, {
        hooks: () => hooks,
        read: createCommandReader(scripts),
        meet(command) {
          const { label: script, items } = command;
          const gateway = gatewayOf(command);
          const passing = { gateway, script, items: items.map((item) => passingItem(gateway, script, item)) };
          if (RECORDED.has(script)) events.push(...passing.items);
          return passing;
        },
      });
    });
    server.listen(0, "127.0.0.1");
    servers.push(server);
    await once(server, "listening");
    return (server.address() as AddressInfo).port;
  }

  return {
    /** The history so far. */
    events,
    steer(next: Hooks): void {
      hooks = next;
    },
    /** A listener of its own for one gateway. @returns its URL */
    async listen(gateway: string): Promise<string> {
      return `redis://127.0.0.1:${await open(() => () => gateway)}`;
    },
    /**
     * A listener for all gateways, as a node of a cluster has only one address.
     * @param gatewayOf the gateway that connects under a user name now
     * @returns its port
     */
    listenForUsers: (gatewayOf: (user: string) => string): Promise<number> =>
      open(() => {
        let gateway: string | undefined;
        return ({ label, bytes }) => {
          if (label === "auth" || label === "hello")
            gateway ??= gatewayOf(/slot\d+/.exec(bytes.toString("latin1"))?.[0] ?? "");
          return gateway ?? "";
        };
      }),
    /** From now on another Redis is behind the same addresses; what was connected is reset. */
    pointTo(nextPort: number): void {
      port = nextPort;
      for (const link of links) link.resetAndDestroy();
    },
    stop(): void {
      for (const server of servers) server.close();
      for (const link of links) link.destroy();
    },
  };
}

/** The request id is the first ARGV of their own of ADMIT, BIND, VOID and OBSERVE alike. */
function passingItem(gateway: string, script: string, { keys, args }: SentItem): PassingItem {
  const requestId = RECORDED.has(script) ? String(args[0]) : "";
  return {
    gateway,
    script,
    requestId,
    atMs: Date.now(),
    forwardedMs: 0,
    outcome: "",
    delivered: false,
    keys,
    args,
  };
}

/** One direction of a connection: what comes passes in order, when and if it may. */
function createLane(socket: Socket, split: () => boolean) {
  let tail: Promise<void> | undefined;
  let frozen = false;
  return {
    send(bytes: Buffer, action: Action, passed: () => void): void {
      if (frozen) return;
      if (action === "freeze") {
        frozen = true;
        return;
      }
      const delayMs = typeof action === "object" ? action.delayMs : 0;
      if (!tail && delayMs === 0 && !split()) {
        passed();
        if (!socket.destroyed) socket.write(bytes);
        return;
      }
      const mine = (tail ?? Promise.resolve()).then(async () => {
        if (delayMs > 0) await new Promise((resolve) => setTimeout(resolve, delayMs));
        passed();
        await write(socket, bytes, split());
      });
      tail = mine;
      void mine.then(() => {
        if (tail === mine) tail = undefined;
      });
    },
    idle: (): Promise<void> => tail ?? Promise.resolve(),
  };
}

function openLink(
  client: Socket,
  targetPort: number,
  { hooks, read, meet }: { hooks(): Hooks; read(chunk: Buffer): Command[]; meet(command: Command): Passing },
): void {
  const target = connect({ port: targetPort, host: "127.0.0.1", noDelay: true });
  const split = (): boolean => hooks().split === true;
  const toRedis = createLane(target, split);
  const toClient = createLane(client, split);
  const readReplies = createReplyReader();
  const unanswered: Passing[] = [];
  const reset = (): void => {
    if (!client.destroyed) client.resetAndDestroy();
    target.destroy();
  };

  const onCommand = (command: Command): void => {
    const passing = meet(command);
    const action = hooks().command?.(passing);
    if (action === "reset") {
      reset();
      return;
    }
    toRedis.send(command.bytes, action, () => {
      for (const item of passing.items) item.forwardedMs = Date.now();
      unanswered.push(passing);
    });
  };
  const onReply = (reply: Reply): void => {
    const passing = unanswered.shift();
    if (!passing) return;
    // One part for each item, or one error for all of them.
    passing.items.forEach((item, at) => {
      item.outcome = reply.parts[at] ?? reply.outcome;
    });
    const action = hooks().reply?.(passing, reply.bytes);
    if (action === "reset") {
      reset();
      return;
    }
    toClient.send(reply.bytes, action, () => {
      for (const item of passing.items) item.delivered = !client.destroyed;
    });
  };

  let known = false;
  const readCommands = (chunk: Buffer): Command[] => {
    try {
      const commands = read(chunk);
      known ||= commands.length > 0;
      return commands;
    } catch (error) {
      if (known) throw error;
      // A request for a gateway that was killed, and whose port this proxy has by now.
      reset();
      return [];
    }
  };
  client.on("data", (chunk: Buffer) => readCommands(chunk).forEach(onCommand));
  target.on("data", (chunk: Buffer) => readReplies(chunk).forEach(onReply));
  // Data that a client sent before it left still arrives, as it does from a kernel's buffer.
  client.on("close", () => void toRedis.idle().then(() => target.end()));
  target.on("close", () => void toClient.idle().then(() => client.destroy()));
  for (const socket of [client, target]) socket.on("error", () => undefined);
}
