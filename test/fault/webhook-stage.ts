import { setTimeout as pause } from "node:timers/promises";
import {
  CALLBACK_DELIVERIES,
  type DeliveryTarget,
  deliveryTarget,
  listDeliveries,
} from "../../src/operations/webhooks/deliveries.ts";
import {
  type Endpoint,
  patchEndpoint,
  readEndpoint,
  registerEndpoint,
  type WebhookRules,
} from "../../src/operations/webhooks/endpoints.ts";
import { cliActor } from "../../src/records/actor.ts";
import { entryFields } from "../../src/records/ledger-entries.ts";
import { keyRef, partitionNames, partitionOf, requestName, webhookNames } from "../../src/records/names.ts";
import { requestOf } from "../../src/records/records.ts";
import { partitionsOf, type RedisNodes } from "../../src/redis/store-facts.ts";
import { webhookRules } from "../../src/webhooks/operator-rules.ts";
import { type Customer, poll } from "./client.ts";
import { anyGateway, type Fleet } from "./fleet.ts";
import { WEBHOOK_SECRET_KEY } from "./gateways.ts";
import {
  CALLBACK,
  type KnownEndpoint,
  type Lease,
  type Look,
  type ReceivedMessage,
  type Settling,
  type StoredDelivery,
  type WebhookFacts,
} from "./history.ts";
import { type Strays, startStrays } from "./strays.ts";
import { type Manner, Receiver } from "./webhook-receiver.ts";

/** Also a busy machine answers within it. */
const TIMEOUT_MS = 3000;
/** As src/webhooks/delivery-worker.ts has it: the rest of a lease, beyond the timeout, when its try begins at the latest. */
const LEASE_SLACK_MS = 2500;
const PER_ENDPOINT = 4;
const RETRIES = ["100ms", "200ms", "300ms", "500ms", "1s", "2s", "3s"];
/** Of receivers, and of nothing else: other addresses of the loopback are inner ones. */
const RECEIVERS = "127.0.0.1/32";
/** Nobody listens there: the campaign itself brings callbacks to a gateway. */
const PUBLIC_URL = "http://gateways.example";
/** The section `webhooks` of gateways whose messages are watched. Schedules are short. */
export const WEBHOOKS = {
  ...{ public_url: PUBLIC_URL, relay: "all", callbacks: "all", any_origin: true },
  ...{ allow_networks: [RECEIVERS], timeout: `${TIMEOUT_MS}ms`, retries: RETRIES },
  in_flight_per_endpoint: PER_ENDPOINT,
};
/** Takes any address, as if more had been allowed when an endpoint was registered. */
const RULES = {
  ...(webhookRules({
    ...{ secretKey: WEBHOOK_SECRET_KEY, previousSecretKey: undefined, endpointsPerAccount: 10 },
    ...{ allowNetworks: [RECEIVERS], allowPorts: [], proxyUrl: undefined },
  }) as WebhookRules),
  checkAddress: (url: string) => ({ ok: true as const, url }),
};

/** Entries of one millisecond of a partition, and a few more. */
const ENTRIES_OF_AN_END = 50;
/** Retries come within seconds, so what does not move for this long is stuck. A busy machine takes minutes for thousands of tries. */
const STUCK_AFTER_MS = 60_000;
const LOOK_EVERY_MS = 200;
/** Short beside a failover. */
const NODES_KNOWN_MS = 100;

/** Endpoints of a fleet's customers, the receivers behind them, and what these were told. */
export class WebhookStage {
  readonly receiver: Receiver;
  readonly #strays: Strays;
  readonly leases: Lease[] = [];
  readonly settlings: Settling[] = [];
  readonly byHand: WebhookFacts["byHand"] = [];
  readonly #fleet: Fleet;
  readonly #customers: Map<string, Customer>;
  readonly #secrets: Map<string, Map<string, string>>;
  readonly #endpoints: (KnownEndpoint & { endpoint: Endpoint })[] = [];

  private constructor(
    fleet: Fleet,
    { receiver, strays }: { receiver: Receiver; strays: Strays },
    customers: Map<string, Customer>,
    secrets: Map<string, Map<string, string>>,
  ) {
    this.#fleet = fleet;
    this.receiver = receiver;
    this.#strays = strays;
    this.#customers = customers;
    this.#secrets = secrets;
  }

  /** @param options.inner endpoints may be at inner addresses, which needs Linux */
  static async start(fleet: Fleet, { inner = false } = {}): Promise<WebhookStage> {
    const customers = new Map<string, Customer>();
    const secrets = new Map<string, Map<string, string>>();
    const strays = await startStrays({ inner });
    const receiver = await Receiver.start({
      seed: fleet.options.seed,
      redirects: strays.redirects,
      secretsOf: (accountId) => secrets.get(accountId) ?? new Map(),
      look: async (message) => {
        const customer = customers.get(message.accountId);
        return customer && (await lookAt(fleet, customer, message).catch(() => undefined));
      },
    });
    return new WebhookStage(fleet, { receiver, strays }, customers, secrets);
  }

  stop(): void {
    this.receiver.stop();
    this.#strays.stop();
  }

  /** Messages about an account's tasks are looked into from now on, also those to its requests' own addresses. */
  watch(customer: Customer): void {
    this.#customers.set(customer.accountId, customer);
  }

  /** How an endpoint answers; undefined for addresses of requests. */
  mannerOf(id: string): string | undefined {
    return this.#endpoints.find(({ endpointId }) => endpointId === id)?.manner;
  }

  /** Of a request's own address when no endpoint is named. */
  urlFor(accountId: string, manner: Manner, name?: string): string {
    return manner === "inner" ? this.#strays.innerUrl() : this.receiver.urlFor(accountId, manner, name);
  }

  /** @param at an address that is not the receiver's */
  async giveEndpoint(customer: Customer, manner: Manner, at?: string): Promise<Endpoint> {
    this.watch(customer);
    const { accountId } = customer;
    const nodes = await this.#fleet.nodes();
    const url = at ?? this.urlFor(accountId, manner, `endpoint-${this.#endpoints.length}`);
    const wanted = { url, events: ["task.completed", "task.failed"] };
    const { endpoint, secret } = await registerEndpoint(nodes, accountId, wanted, cliActor(), RULES);
    const { endpointId } = endpoint;
    this.receiver.expect(url, endpointId);
    const own = this.#secrets.get(accountId) ?? new Map<string, string>();
    this.#secrets.set(accountId, own.set(endpointId, secret));
    const now = Date.now();
    this.#endpoints.push({ accountId, endpointId, manner, enabledMs: [[now, now]], endpoint });
    return endpoint;
  }

  /** As an operator does. */
  async enable(endpoint: Endpoint, isEnabled: boolean): Promise<void> {
    const status = isEnabled ? "enabled" : "disabled";
    await patchEndpoint(await this.#fleet.nodes(), endpoint, { status }, cliActor(), { rules: RULES });
  }

  /** Only here an endpoint is enabled again: one that is enabled at two looks was so between them. */
  async #keepEnabled(): Promise<void> {
    let nodes = await this.#fleet.nodes();
    let knownMs = Date.now();
    for (const one of this.#endpoints) {
      // An answer of a gateway that stood still, or was replaced meanwhile, is of another time.
      if (Date.now() - knownMs > NODES_KNOWN_MS) {
        nodes = await this.#fleet.nodes();
        knownMs = Date.now();
      }
      const beforeMs = Date.now();
      const { status } = await readEndpoint(nodes, one.accountId, one.endpointId);
      if (status === "enabled") one.enabledMs.at(-1)![1] = beforeMs;
      else {
        await patchEndpoint(nodes, one.endpoint, { status: "enabled" }, cliActor(), { rules: RULES });
        this.#fleet.note("endpoint enabled again");
        one.enabledMs.push([Date.now(), Date.now()]);
      }
    }
  }

  /** Enables what was disabled until it is told to stop; resolves after the last look. */
  startEnabling(): { stop(): Promise<void> } {
    let stopped = false;
    const work = (async () => {
      while (!stopped) {
        // A store that is away is looked at again.
        await this.#keepEnabled().catch(() => undefined);
        await pause(LOOK_EVERY_MS);
      }
    })();
    return {
      async stop() {
        stopped = true;
        await work;
      },
    };
  }

  /** Deliveries that wait, of all endpoints. */
  async waiting(): Promise<number> {
    const nodes = await this.#fleet.nodes();
    const partitions = await partitionsOf(nodes);
    let all = 0;
    for (let partition = 0; partition < partitions; partition++)
      all += Number((await nodes.of(partition).hget(webhookNames(partition).totals, " waiting")) ?? 0);
    return all;
  }

  /** Waits until no delivery waits, and reads what became of all. */
  async facts(): Promise<WebhookFacts> {
    let tries = -1;
    let stuckMs = 0;
    while ((await this.waiting()) > 0) {
      const { length } = this.receiver.messages;
      if (length > tries) stuckMs = Date.now() + STUCK_AFTER_MS;
      else if (Date.now() > stuckMs) break;
      tries = length;
      await this.#keepEnabled();
      await pause(LOOK_EVERY_MS);
    }
    await this.#keepEnabled();
    const nodes = await this.#fleet.nodes();
    const ofRequests = [...this.#customers.keys()].map((accountId) =>
      deliveryTarget(nodes, accountId, CALLBACK_DELIVERIES),
    );
    const targets = [...this.#endpoints.map(({ endpoint }) => endpoint), ...(await Promise.all(ofRequests))];
    const stored = await Promise.all(targets.map((target) => readStored(nodes, target)));
    const { leases, settlings, byHand, receiver } = this;
    return {
      endpoints: this.#endpoints.map(({ endpoint: _endpoint, ...one }) => one),
      messages: receiver.messages,
      strays: this.#strays.arrived,
      stored: stored.flat(),
      ...{ leases, settlings, byHand, waiting: await this.waiting() },
      answerMs: TIMEOUT_MS / 3,
      ...{ leaseMs: TIMEOUT_MS + LEASE_SLACK_MS, perEndpoint: PER_ENDPOINT },
      tries: RETRIES.length + 1,
    };
  }
}

async function readStored(nodes: RedisNodes, target: DeliveryTarget): Promise<StoredDelivery[]> {
  const all: StoredDelivery[] = [];
  let cursor: string | undefined;
  do {
    const page = await listDeliveries(nodes, target, { limit: 100, cursor });
    for (const { endpointId = CALLBACK, eventId, status, tries } of page.deliveries)
      all.push({ endpointId, webhookId: eventId, status, tries });
    cursor = page.next;
  } while (cursor !== undefined);
  return all;
}

/** The request that a message of a task is about. */
export const requestIdOf = (webhookId: string): string =>
  /^evt_(.+)_task_(?:completed|failed)$/.exec(webhookId)?.[1] ?? "";

/** Reads the store first: what it shows then was booked before the message came. */
async function lookAt(
  fleet: Fleet,
  customer: Customer,
  { accountId, webhookId, taskId }: ReceivedMessage,
): Promise<Look | undefined> {
  const requestId = requestIdOf(webhookId);
  if (requestId === "") return undefined;
  const nodes = await fleet.nodes();
  const partition = partitionOf(accountId, await partitionsOf(nodes));
  const redis = nodes.of(partition);
  const { slots } = keyRef(customer.keyId, accountId, partition).names;
  const polling = anyGateway(fleet, fleet.client.length).then((gateway) => poll(gateway, customer, taskId));
  void polling.then((event) => fleet.client.push(event));
  const [text, slot] = await Promise.all([
    redis.get(requestName(partition, requestId)),
    redis.sismember(slots, requestId),
  ]);
  const { state = "", status = "", finished_at: finishedAt } = requestOf(text);
  const { ledger } = partitionNames(partition);
  const entries = await redis.xrange(ledger, finishedAt ?? "+", "+", "COUNT", ENTRIES_OF_AN_END);
  const refunded = entries
    .map(([, flat]) => entryFields(flat))
    .some(({ request_id, reason }) => request_id === requestId && reason === "refund");
  return { state, status, holdsSlot: slot === 1, refunded, polled: (await polling).taskStatus };
}
