import { GatewayError } from "../../domain/errors.ts";
import { parseRedisAddress } from "../../domain/redis-address.ts";
import type { ConfirmationRule } from "../../redis/confirmation.ts";
import type { RedisNodes } from "../../redis/nodes.ts";
import { type OpenedNodes, openNodes } from "../../redis/open-nodes.ts";
import { inStoreWords, isStoreError } from "../../redis/reasons.ts";
import { readFacts, type StoreRules } from "../../redis/store-facts.ts";
import type { ArchiveLookUps } from "../credits/refunds.ts";
import { findWritable } from "../store/operator-loss.ts";
import { confirmedByReplicas, type Written, writtenBy } from "./confirmed-writes.ts";

export type { RedisNodes };

/** Longer than that of requests: pages of records take more time. */
const COMMAND_TIMEOUT_MS = 5000;
/** Of several servers the primaries are asked for again after so long. */
const PLACED_MS = 10_000;

export type OperatorSession = ReturnType<typeof createOperatorSession>;

/** Connections, and the work that uses them. */
interface Opened {
  ready: Promise<OpenedNodes>;
  openedMs: number;
  users: number;
}

/**
 * The management API's own connections, made when they are first used: bulk reads of operators never delay a customer's request.
 * @param options.archive what is asked of the archive
 */
export function createOperatorSession(
  options: StoreRules & {
    redisUrl: string;
    tlsCa?: string | undefined;
    /** The journal's folder, whose files know what the store has confirmed. */
    journal?: string | undefined;
    confirm?: ConfirmationRule | undefined;
    archive?: ArchiveLookUps | undefined;
  },
) {
  const { redisUrl, tlsCa } = options;
  const isPlaced = parseRedisAddress(redisUrl).kind !== "server";
  let current: Opened | undefined;

  async function open(): Promise<OpenedNodes> {
    const opened = await openNodes({ redisUrl, tlsCa }, COMMAND_TIMEOUT_MS);
    try {
      // Refuses a store that gateways refuse.
      await readFacts(opened.nodes, options);
      return opened;
    } catch (error) {
      opened.close();
      throw error;
    }
  }

  /** Opens anew what failed, and what may have failed over. */
  function use(): Opened {
    const isOld = isPlaced && current !== undefined && performance.now() - current.openedMs > PLACED_MS;
    if (isOld) leave(current!);
    current ??= { ready: open(), openedMs: performance.now(), users: 0 };
    current.users++;
    return current;
  }
  function leave(opened: Opened): void {
    if (current === opened) current = undefined;
    if (opened.users > 0) return;
    opened.ready.then(
      ({ close }) => close(),
      () => undefined,
    );
  }
  function release(opened: Opened): void {
    opened.users--;
    if (current !== opened) leave(opened);
  }

  /**
   * Runs an operator's work against Redis.
   * @throws GatewayError `store_unavailable` for an error of the store; any other error as it is
   */
  async function run<T>(work: (nodes: RedisNodes) => Promise<T>): Promise<T> {
    const opened = use();
    const unavailable = (error: unknown): GatewayError => {
      leave(opened);
      return new GatewayError("store_unavailable", inStoreWords(error), { cause: error });
    };
    try {
      const { nodes } = await opened.ready.catch((error: unknown) => {
        throw unavailable(error);
      });
      return await work(nodes);
    } catch (error) {
      throw isStoreError(error) ? unavailable(error) : error;
    } finally {
      release(opened);
    }
  }

  return {
    run,
    archive: options.archive ?? {},
    /** The same for work that writes. @throws OperatorError also if it writes where the store says that it is older than what it confirmed */
    write: <T>(work: (nodes: RedisNodes) => Promise<T>): Promise<Written<T>> =>
      run(async (nodes) => {
        const writable = await findWritable(nodes, options.journal);
        // While replicas are away, other operators' reads wait behind this for a second.
        const confirmed = confirmedByReplicas(nodes, options.confirm?.replicas ?? 0);
        return writtenBy(work, { ...confirmed, ...writable });
      }),
    close(): void {
      if (current) leave(current);
    },
  };
}
