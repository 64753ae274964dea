import { Resolver } from "node:dns/promises";
import { isIP, type LookupFunction, type Socket } from "node:net";
import { Agent, buildConnector, type Dispatcher, Pool, ProxyAgent } from "undici";
import { skippingInterimAnswers } from "../upstream/json-client.ts";
import { portOf } from "./address-guard.ts";
import { type AddressPolicy, addressProblem } from "./public-address.ts";

export interface EgressPolicy extends AddressPolicy {
  readonly proxyUrl: string | undefined;
  /** How long a try may take in all; each part of it has this bound, too. */
  readonly timeoutMs: number;
}

/** Parts that tests replace. */
export interface Network {
  resolve(name: string): Promise<string[]>;
  connect(options: buildConnector.Options, addresses: readonly string[], timeoutMs: number): Promise<Socket>;
  /** Authorities for certificates, PEM; Node's own by default. */
  ca?: string;
}

export class AddressRefusedError extends Error {
  override name = "AddressRefusedError";
}

const KEPT = { keepAliveTimeout: 2_000, keepAliveMaxTimeout: 10_000, clientTtl: 60_000, pipelining: 1 };
const HEADER_BYTES_MAX = 8_192;

/** Connects to public addresses and allowed networks only, or through the proxy. The caller closes it. */
export function guardedAgent(policy: EgressPolicy, network: Network = ownNetwork()): Dispatcher {
  const { proxyUrl, timeoutMs } = policy;
  const options = {
    ...KEPT,
    allowH2: false,
    maxHeaderSize: HEADER_BYTES_MAX,
    headersTimeout: timeoutMs,
    bodyTimeout: timeoutMs,
  };
  if (proxyUrl === undefined)
    return new Agent({ ...options, connect: skippingInterimAnswers(guardedConnector(policy, network)) });
  return new ProxyAgent({
    ...options,
    uri: proxyUrl,
    connectTimeout: timeoutMs,
    clientFactory: (origin, client) => new Pool(origin, { ...client, headersTimeout: timeoutMs }),
    // Through the tunnel, to the receiver.
    factory: (origin, { connect, ...pool }: Pool.Options) =>
      new Pool(origin, { ...pool, connect: skippingInterimAnswers(connect as buildConnector.connector) }),
    ...(network.ca !== undefined && { requestTls: { ca: network.ca } }),
  });
}

/** Resolved once, checked, and connected to, so that a second answer of DNS changes nothing; the peer is checked, too. */
function guardedConnector(policy: EgressPolicy, network: Network): buildConnector.connector {
  const { timeoutMs } = policy;
  const startTls = buildConnector({
    timeout: timeoutMs,
    allowH2: false,
    ...(network.ca !== undefined && { ca: network.ca }),
  });

  async function open(options: buildConnector.Options): Promise<Socket> {
    const check = (address: string): void => {
      const target = { protocol: options.protocol, port: portOf(options) };
      const problem = addressProblem(address, target, policy);
      if (problem !== undefined) throw new AddressRefusedError(problem);
    };
    const isLiteral = isIP(options.hostname) !== 0;
    const addresses = isLiteral ? [options.hostname] : await network.resolve(options.hostname);
    for (const address of addresses) check(address);
    const socket = await network.connect(options, addresses, timeoutMs);
    try {
      // The receiver has closed the connection: there is no peer any more.
      if (socket.remoteAddress === undefined)
        throw Object.assign(new Error("closed"), { code: "ECONNRESET" });
      check(socket.remoteAddress);
    } catch (error) {
      socket.destroy();
      throw error;
    }
    if (options.protocol !== "https:") return socket;
    return await connected(startTls, { ...options, httpSocket: socket });
  }

  return (options, callback) => {
    open(options).then(
      (socket) => callback(null, socket),
      (error) => callback(error, null),
    );
  };
}

const connected = (connect: buildConnector.connector, options: buildConnector.Options): Promise<Socket> =>
  new Promise((resolve, reject) => {
    connect(options, (...[error, socket]) => (error ? reject(error) : resolve(socket as Socket)));
  });

/** A resolver of its own: `dns.lookup` would let slow name servers occupy the threads that everything else shares. */
export function ownNetwork(servers?: readonly string[]): Network {
  const resolver = new Resolver({ timeout: 2_000, tries: 2 });
  if (servers) resolver.setServers(servers);
  return {
    async resolve(name) {
      const answers = await Promise.allSettled([resolver.resolve4(name), resolver.resolve6(name)]);
      const addresses = answers.flatMap((answer) => (answer.status === "fulfilled" ? answer.value : []));
      if (addresses.length > 0) return addresses;
      throw answers.find((answer) => answer.status === "rejected")?.reason ?? new Error("no address");
    },
    connect(options, addresses, timeoutMs) {
      const connect = buildConnector({
        timeout: timeoutMs,
        lookup: pinned(addresses),
      } as buildConnector.BuildOptions);
      return connected(connect, { ...options, protocol: "http:", port: String(portOf(options)) });
    },
  };
}

/** Node asks for all addresses to try the next if one does not answer, else for one. */
function pinned(addresses: readonly string[]): LookupFunction {
  const all = addresses.map((address) => ({ address, family: isIP(address) }));
  return (_name, { all: wantsAll }, callback) => {
    const [first] = all;
    if (wantsAll) callback(null, all);
    else callback(null, first?.address ?? "", first?.family);
  };
}
