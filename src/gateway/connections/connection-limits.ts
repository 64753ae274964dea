export type ConnectionLimits<Connection extends LimitedConnection> = ReturnType<
  typeof createConnectionLimits<Connection>
>;

export interface LimitedConnection {
  /** An IPv4 address, or the /64 of an IPv6 address. */
  readonly address: string;
  /** It comes from a trusted proxy (`server.trust_proxy`), which serves many clients. */
  readonly trusted: boolean;
  /** Grows with each request: the connection with the lowest value has been idle the longest. */
  lastActive: number;
  isIdle(): boolean;
  /** No complete request on it is pending, so none was admitted. */
  isSending(): boolean;
}

export type ConnectionBound = "connections" | "connections_per_address";

type ConnectionAdmission<Connection> =
  | { outcome: "admitted" }
  | { outcome: "admitted_instead"; of: Connection; bound: ConnectionBound }
  | { outcome: "refused"; bound: ConnectionBound };

/**
 * At a limit, a new connection replaces the longest idle one of the address with the most, or else the one that sends an incomplete request
 * for the longest time; refused if that address has no more than its own. So no address can take another's last connection. Those from
 * trusted proxies count in total only and are never replaced. Decision 0035.
 */
export function createConnectionLimits<Connection extends LimitedConnection>(
  limits: () => { total: number; perAddress: number },
) {
  const byAddress = new Map<string, Set<Connection>>();
  let count = 0;

  function add(connection: Connection): void {
    count++;
    if (connection.trusted) return;
    const own = byAddress.get(connection.address);
    if (own) own.add(connection);
    else byAddress.set(connection.address, new Set([connection]));
  }

  function remove(connection: Connection): void {
    count--;
    const own = byAddress.get(connection.address);
    own?.delete(connection);
    if (own?.size === 0) byAddress.delete(connection.address);
  }

  /** The connections of the address with the most, if it would still have at least as many as the newcomer's address. */
  function largest(newcomer: Connection): ReadonlySet<Connection> | undefined {
    const own = newcomer.trusted ? undefined : byAddress.get(newcomer.address);
    let found = own;
    for (const each of byAddress.values()) if (each.size > (found?.size ?? 0)) found = each;
    return found === own || found!.size > (own?.size ?? 0) + 1 ? found : own;
  }

  function enter(connection: Connection): ConnectionAdmission<Connection> {
    const { total, perAddress } = limits();
    const own = connection.trusted ? undefined : byAddress.get(connection.address);
    const bound: ConnectionBound | undefined =
      (own?.size ?? 0) >= perAddress ? "connections_per_address" : count >= total ? "connections" : undefined;
    if (bound === undefined) {
      add(connection);
      return { outcome: "admitted" };
    }
    const from = bound === "connections" ? largest(connection) : own;
    const of = longest(from, (each) => each.isIdle()) ?? longest(from, (each) => each.isSending());
    if (!of) return { outcome: "refused", bound };
    remove(of);
    add(connection);
    return { outcome: "admitted_instead", of, bound };
  }

  return {
    /** @returns whether it is admitted, and which connection must be ended for it; that one is not counted any more */
    enter,
    /** An admitted connection, not replaced by another one, has closed. */
    leave: remove,
    count: () => count,
  };
}

function longest<Connection extends LimitedConnection>(
  connections: Iterable<Connection> | undefined,
  mayEnd: (connection: Connection) => boolean,
): Connection | undefined {
  let found: Connection | undefined;
  for (const each of connections ?? []) {
    if ((!found || each.lastActive < found.lastActive) && mayEnd(each)) found = each;
  }
  return found;
}
