import { createHash } from "node:crypto";
import { once } from "node:events";
import { type AddressInfo, connect, createServer, type Server, type Socket } from "node:net";
import { join } from "node:path";
import { setImmediate as nextTick } from "node:timers/promises";
import { scriptSource, VERBS } from "../../src/store/scripts.ts";
import type { LinkEvent } from "./history.ts";
import { createCommandReader, createReplyReader, type RawCommand, type RawReply } from "./resp.ts";

/** One command between a gateway and Redis, from its arrival on; the history's line and what else hooks ask for. */
export interface Passing extends LinkEvent {
  words: string[];
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
  /** Before a reply is delivered. */
  reply?(passing: Passing): Action;
  /** Every byte goes on its own, both ways. */
  split?: boolean;
}

/** Verbs whose commands belong into the history. */
const RECORDED = new Set(["admit", "bind", "void", "observe"]);

export type RedisProxy = ReturnType<typeof createRedisProxy>;

/**
 * Stands between gateways and Redis, knows each command by its script's verb and its request id, and does to it what
 * the hooks say.
 * @param root where the gateways' `lua/` lies
 */
export function createRedisProxy(targetPort: number, root: string) {
  const verbs = verbsOf(root);
  const servers: Server[] = [];
  const links = new Set<Socket>();
  const events: Passing[] = [];
  let hooks: Hooks = {};

  return {
    /** The history so far. */
    events,
    steer(next: Hooks): void {
      hooks = next;
    },
    /** A listener of its own for one gateway. @returns its URL */
    async listen(gateway: string): Promise<string> {
      const server = createServer({ noDelay: true }, (client) => {
        links.add(client);
        client.once("close", () => links.delete(client));
        openLink(client, targetPort, {
          hooks: () => hooks,
          meet(command) {
            const passing = { gateway, ...identify(command, verbs), atMs: Date.now(), forwardedMs: 0 };
            const event: Passing = { ...passing, outcome: "", delivered: false, words: command.words };
            if (RECORDED.has(event.verb)) events.push(event);
            return event;
          },
        });
      });
      server.listen(0, "127.0.0.1");
      servers.push(server);
      await once(server, "listening");
      return `redis://127.0.0.1:${(server.address() as AddressInfo).port}`;
    },
    stop(): void {
      for (const server of servers) server.close();
      for (const link of links) link.destroy();
    },
  };
}

function verbsOf(root: string): Map<string, string> {
  const sha1 = (text: string): string => createHash("sha1").update(text).digest("hex");
  return new Map(VERBS.map((verb) => [sha1(scriptSource(verb, join(root, "lua"))), verb]));
}

/** The request id is ARGV[3] of ADMIT, BIND, VOID and OBSERVE alike. */
function identify({ words }: RawCommand, verbs: Map<string, string>): { verb: string; requestId: string } {
  const [name = "", script = "", keys = "0"] = words;
  const word = name.toLowerCase();
  if (word !== "evalsha" && word !== "eval") return { verb: word, requestId: "" };
  const sha = word === "eval" ? createHash("sha1").update(script, "latin1").digest("hex") : script;
  const verb = verbs.get(sha) ?? word;
  return { verb, requestId: RECORDED.has(verb) ? (words[3 + Number(keys) + 2] ?? "") : "" };
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
        await writeOut(socket, bytes, split());
      });
      tail = mine;
      void mine.then(() => {
        if (tail === mine) tail = undefined;
      });
    },
    idle: (): Promise<void> => tail ?? Promise.resolve(),
  };
}

async function writeOut(socket: Socket, bytes: Buffer, split: boolean): Promise<void> {
  if (!split) {
    if (!socket.destroyed) socket.write(bytes);
    return;
  }
  for (let at = 0; at < bytes.length && !socket.destroyed; at++) {
    socket.write(bytes.subarray(at, at + 1));
    await nextTick();
  }
}

function openLink(
  client: Socket,
  targetPort: number,
  { hooks, meet }: { hooks(): Hooks; meet(command: RawCommand): Passing },
): void {
  const target = connect({ port: targetPort, host: "127.0.0.1", noDelay: true });
  const split = (): boolean => hooks().split === true;
  const toRedis = createLane(target, split);
  const toClient = createLane(client, split);
  const readCommands = createCommandReader();
  const readReplies = createReplyReader();
  const unanswered: Passing[] = [];
  const reset = (): void => {
    if (!client.destroyed) client.resetAndDestroy();
    target.destroy();
  };

  const onCommand = (command: RawCommand): void => {
    const passing = meet(command);
    const action = hooks().command?.(passing);
    if (action === "reset") {
      reset();
      return;
    }
    toRedis.send(command.bytes, action, () => {
      passing.forwardedMs = Date.now();
      unanswered.push(passing);
    });
  };
  const onReply = (reply: RawReply): void => {
    const passing = unanswered.shift();
    if (!passing) return;
    passing.outcome = reply.outcome;
    const action = hooks().reply?.(passing);
    if (action === "reset") {
      reset();
      return;
    }
    toClient.send(reply.bytes, action, () => {
      passing.delivered = !client.destroyed;
    });
  };

  client.on("data", (chunk: Buffer) => readCommands(chunk).forEach(onCommand));
  target.on("data", (chunk: Buffer) => readReplies(chunk).forEach(onReply));
  // What a client sent before it left still arrives, as it does from a kernel's buffer.
  client.on("close", () => void toRedis.idle().then(() => target.end()));
  target.on("close", () => void toClient.idle().then(() => client.destroy()));
  for (const socket of [client, target]) socket.on("error", () => undefined);
}
