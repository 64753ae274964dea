import { once } from "node:events";
import { type AddressInfo, createServer, type Server } from "node:net";

/** Outside of the networks that gateways of campaigns may call; Linux has it on the loopback without being asked. */
const INNER = "127.0.0.2";
/** Notations of one address. */
const INNER_HOSTS = [INNER, `[::ffff:${INNER}]`, "2130706434"];

/** A connection to where no gateway may connect. */
export interface Stray {
  /** `inner`: an address that is not allowed; `redirect`: one that is, and that only redirects name. */
  to: "inner" | "redirect";
  atMs: number;
}

/** Listeners that no gateway may reach, and who came nevertheless. */
export interface Strays {
  arrived: Stray[];
  /** Addresses that redirects name. */
  redirects: readonly string[];
  /** An inner address, in one notation after the other. @throws where none is listened at */
  innerUrl(): string;
  stop(): void;
}

/** @param options.inner listens at an inner address, too, which needs Linux */
export async function startStrays({ inner }: { inner: boolean }): Promise<Strays> {
  const arrived: Stray[] = [];
  const servers: Server[] = [];
  const listen = async (host: string, to: Stray["to"]): Promise<number> => {
    const server = createServer((socket) => {
      arrived.push({ to, atMs: Date.now() });
      socket.on("error", () => undefined).destroy();
    });
    servers.push(server);
    server.listen(0, host);
    await once(server, "listening");
    return (server.address() as AddressInfo).port;
  };
  let lookUps = 0;
  const redirects = [`http://127.0.0.1:${await listen("127.0.0.1", "redirect")}/elsewhere`];
  const innerPort = inner ? await listen(INNER, "inner") : undefined;
  if (innerPort !== undefined) redirects.push(`http://${INNER}:${innerPort}/elsewhere`);
  return {
    arrived,
    redirects,
    innerUrl() {
      if (innerPort === undefined) throw new Error("no inner address is listened at");
      return `http://${INNER_HOSTS[lookUps++ % INNER_HOSTS.length]}:${innerPort}/`;
    },
    stop() {
      for (const server of servers) server.close();
    },
  };
}
