import { once } from "node:events";
import { type AddressInfo, connect, createServer, type Server, type Socket } from "node:net";

/**
 * How a link is cut. silent: connections stay open and nothing passes, and what was sent passes when it is healed, as
 * with lost packets. reset: connections are reset, and so are new ones.
 */
export type Cut = "silent" | "reset";

/** Who is at the other ends of a cut link; everybody when left out. */
export interface CutOptions {
  how?: Cut;
  /** Names of nodes, or OUTSIDE. */
  from?: readonly string[];
}

/** Whoever has no source address of its own: gateways, and clients of a test. */
export const OUTSIDE = "outside";

/** Sees what passes on one connection, in both directions. */
export interface Tap {
  sent(chunk: Buffer): void;
  received(chunk: Buffer): void;
}

export type Links = ReturnType<typeof createLinks>;

interface Relay {
  from: string;
  to: string;
  client: Socket;
  target: Socket | undefined;
  targetPort: number;
  isHeldBack: boolean;
  tap: Tap | undefined;
}

/**
 * A relay in front of every node, whose address the node announces: gateways, Sentinels and other nodes alike reach it
 * only through its relay. The relay knows who connects by the source address (`bind-source-addr` of the node), so that
 * one node can be cut off from some or from all, in both directions. This needs no rights, unlike network namespaces
 * and packet filters, and no knowledge of the protocol, so the cluster's bus is relayed alike.
 */
export function createLinks() {
  const names = new Map<string, string>();
  const servers: Server[] = [];
  const relays = new Set<Relay>();
  const cuts = new Map<string, Required<CutOptions>>();
  let openTap: ((from: string, to: string) => Tap | undefined) | undefined;

  const cutBetween = (one: string, other: string): Cut | undefined =>
    [cutOf(cuts.get(one), other), cutOf(cuts.get(other), one)].find((how) => how !== undefined);
  const apply = (relay: Relay): void => {
    const how = cutBetween(relay.from, relay.to);
    if (how === "reset") reset(relay);
    else if (how === "silent") holdBack(relay);
    else goOn(relay);
  };

  return {
    /** Connections from this source address are the node's. */
    know(source: string, name: string): void {
      names.set(source, name);
    },
    /** New connections are tapped. @param open called for each; undefined for one that is not tapped */
    tap(open: (from: string, to: string) => Tap | undefined): void {
      openTap = open;
    },
    /** Listens for what is meant for a node. @returns the port to be announced */
    async open(to: string, targetPort: number): Promise<number> {
      const server = createServer({ allowHalfOpen: true, noDelay: true, pauseOnConnect: true }, (client) => {
        const from = names.get(client.remoteAddress ?? "") ?? OUTSIDE;
        const tap = openTap?.(from, to);
        const relay: Relay = { from, to, client, target: undefined, targetPort, isHeldBack: true, tap };
        relays.add(relay);
        client.on("error", () => undefined);
        client.once("close", () => {
          relays.delete(relay);
          if (relay.target) closeLater(relay, relay.target);
        });
        apply(relay);
      });
      servers.push(server);
      server.listen(0, "127.0.0.1");
      await once(server, "listening");
      return (server.address() as AddressInfo).port;
    },
    cut(name: string, { how = "silent", from = [] }: CutOptions = {}): void {
      cuts.set(name, { how, from });
      for (const relay of relays) apply(relay);
    },
    /** @param options.discard what was held back is lost, as with a machine that is gone; else it passes now */
    heal(name: string, { discard = false }: { discard?: boolean } = {}): void {
      cuts.delete(name);
      for (const relay of relays) {
        const concerns = relay.from === name || relay.to === name;
        if (discard && concerns && relay.isHeldBack) reset(relay);
        else apply(relay);
      }
    },
    stop(): void {
      for (const server of servers) server.close();
      for (const relay of relays) reset(relay);
    },
  };
}

const cutOf = (cut: Required<CutOptions> | undefined, other: string): Cut | undefined =>
  cut && (cut.from.length === 0 || cut.from.includes(other)) ? cut.how : undefined;

function reset({ client, target }: Relay): void {
  client.resetAndDestroy();
  target?.destroy();
}

function holdBack(relay: Relay): void {
  const { client, target } = relay;
  relay.isHeldBack = true;
  client.unpipe();
  client.pause();
  target?.unpipe();
  target?.pause();
}

function goOn(relay: Relay): void {
  if (!relay.isHeldBack) return;
  relay.isHeldBack = false;
  const { client, tap } = relay;
  if (!relay.target) {
    relay.target = openTarget(relay);
    if (tap) {
      client.on("data", (chunk: Buffer) => tap.sent(chunk));
      relay.target.on("data", (chunk: Buffer) => {
        // Data for a client that has left is dropped.
        if (!client.readableEnded && !client.destroyed) tap.received(chunk);
      });
    }
  }
  client.pipe(relay.target).pipe(client);
}

function openTarget(relay: Relay): Socket {
  const target = connect({ host: "127.0.0.1", port: relay.targetPort, allowHalfOpen: true, noDelay: true });
  target.on("error", () => undefined);
  target.once("close", () => closeLater(relay, relay.client));
  return target;
}

/** One end has gone; the other learns it when the link lets it. */
function closeLater(relay: Relay, other: Socket): void {
  if (other.destroyed) return;
  if (!relay.isHeldBack) {
    // Data received before is still forwarded.
    other.destroySoon();
    return;
  }
  setTimeout(() => closeLater(relay, other), 25).unref();
}
