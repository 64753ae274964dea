import { once } from "node:events";
import { type AddressInfo, connect, createServer } from "node:net";

/** A port of the loopback that the system gives to nobody else until it is released. */
export interface HeldPort {
  port: number;
  release(): void;
}

/**
 * Holds a port, also while nobody listens on it: a listener of the test may come, go and come back, and in between a
 * connection is refused. A port that a closed listener leaves would be given to the next process that asks for any.
 *
 * The port is the local end of a connection. The system passes over it when it chooses a port, and lets a listener that
 * asks for this very one share it (SO_REUSEADDR, which Node and Redis set).
 */
export async function holdPort(): Promise<HeldPort> {
  const peer = createServer((socket) => void socket.on("error", () => undefined).resume());
  peer.listen(0, "127.0.0.1");
  await once(peer, "listening");
  const { port: peerPort } = peer.address() as AddressInfo;
  const holder = connect({ host: "127.0.0.1", port: peerPort, localAddress: "127.0.0.1" });
  await once(holder, "connect");
  holder.on("error", () => undefined);
  peer.unref();
  holder.unref();
  return {
    port: holder.localPort!,
    release(): void {
      holder.destroy();
      peer.close();
    },
  };
}
