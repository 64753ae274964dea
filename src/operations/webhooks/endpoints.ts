import type { Redis } from "ioredis";
import { WEBHOOK_EVENT_TYPES } from "../../domain/webhook-events.ts";
import type { Actor } from "../../records/actor.ts";
import { accountNames, endpointNames, randomId, webhookNames, webhooksName } from "../../records/names.ts";
import { changedMeanwhile, noAccount, OperatorError } from "../../records/operator-error.ts";
import type { EndpointRecord } from "../../records/records.ts";
import { listPages, many } from "../../redis/pipelines.ts";
import { scriptsOf } from "../../redis/script-runner.ts";
import { partitionsOf, placeOfAccount, type RedisNodes, writablePlace } from "../../redis/store-facts.ts";
import { webhook } from "../../scripts/webhooks.ts";
import { given, requireLabel } from "../access/operator-values.ts";

export const ENDPOINT_STATUSES = ["enabled", "disabled"] as const;
type DisabledReason = "gone" | "failing" | "operator";

export interface Endpoint {
  endpointId: string;
  accountId: string;
  partition: number;
  url: string;
  events: string[];
  label: string | undefined;
  status: (typeof ENDPOINT_STATUSES)[number];
  disabledReason: DisabledReason | undefined;
  /** Until when the secret before signs, too. */
  previousUntilMs: number | undefined;
  createdAtMs: number;
  revision: number;
  failingSinceMs: number | undefined;
  deliveredAtMs: number | undefined;
  dropped: number;
  droppedAtMs: number | undefined;
  waiting: number;
}

/** Null removes; undefined keeps. */
interface EndpointChanges {
  url?: string | undefined;
  events?: readonly string[] | undefined;
  label?: string | null | undefined;
  status?: Endpoint["status"] | undefined;
}

/** The secret is in no later answer. @throws OperatorError `invalid` address, `account_closed`, `too_many_webhooks` */
export async function registerEndpoint(
  nodes: RedisNodes,
  accountId: string,
  wanted: { url: string; events?: readonly string[] | undefined; label?: string | undefined },
  actor: Actor,
  rules: WebhookRules,
): Promise<{ endpoint: Endpoint; secret: string }> {
  const secret = rules.newSecret();
  const all = { events: WEBHOOK_EVENT_TYPES, ...wanted };
  const fields = { ...fieldsOf(all, rules), secret: rules.seal(secret) };
  const { partition, redis } = await writablePlace(nodes, accountId);
  const endpointId = randomId("we");
  const reply = await scriptsOf(redis).run(webhook, {
    ...{ partition, accountId, endpointId, action: "webhook.create", fields, actor },
    endpointsMax: rules.endpointsMax,
  });
  switch (reply.outcome) {
    case "created":
      return { endpoint: endpointOf(partition, endpointId, reply.record, 0), secret };
    case "closed":
      throw closedAccount(accountId);
    case "full":
      throw new OperatorError(
        `account ${accountId} has ${rules.endpointsMax} endpoints, as many as it may; delete one first`,
        "too_many_webhooks",
      );
    default:
      throw noAccount(accountId);
  }
}

/** In the order of their registration. @throws OperatorError `not_found` */
export async function listEndpoints(nodes: RedisNodes, accountId: string): Promise<Endpoint[]> {
  const { partition, redis } = await placeOfAccount(nodes, accountId);
  const ids = await redis.zrange(webhooksName(partition, accountId), "0", "-1");
  if (ids.length === 0 && (await redis.exists(accountNames(partition, accountId).account)) === 0)
    throw noAccount(accountId);
  const found = await readEndpoints(nodes, partition, ids);
  return found.filter((endpoint) => endpoint !== undefined);
}

/** Addresses of an account's endpoints. Only the server of its partition is asked. */
export async function readAddresses(redis: Redis, partition: number, accountId: string): Promise<string[]> {
  const ids = await redis.zrange(webhooksName(partition, accountId), "0", "-1");
  const urls = await many<string | null, string>(redis, ids, (pipe, id) =>
    pipe.hget(endpointNames(partition, id).endpoint, "url"),
  );
  return urls.filter((url) => url !== null);
}

/** @throws OperatorError `not_found`, also for an endpoint of another account */
export async function readEndpoint(
  nodes: RedisNodes,
  accountId: string,
  endpointId: string,
): Promise<Endpoint> {
  const { partition } = await placeOfAccount(nodes, accountId);
  const [endpoint] = await readEndpoints(nodes, partition, [endpointId]);
  if (endpoint?.accountId !== accountId) throw noEndpoint(accountId, endpointId);
  return endpoint;
}

/** @throws OperatorError `not_found`, `stale` for another revision, `invalid`, `account_closed` */
export async function patchEndpoint(
  nodes: RedisNodes,
  endpoint: Endpoint,
  changes: EndpointChanges,
  actor: Actor,
  { rules, ifRevisions }: { rules: WebhookRules; ifRevisions?: readonly number[] | undefined },
): Promise<void> {
  const fields = fieldsOf(changes, rules);
  await change(nodes, endpoint, { fields, actor, ifRevisions, action: "webhook.patch" });
}

/** The endpoint's deliveries go with it, also those that wait. @throws OperatorError `not_found` */
export const deleteEndpoint = (nodes: RedisNodes, endpoint: Endpoint, actor: Actor): Promise<void> =>
  change(nodes, endpoint, { actor, action: "webhook.delete" });

/**
 * Both secrets sign until `overlapMs` is over. Of two calls that read the same endpoint one is refused: else the first one's caller would
 * keep a secret that signs no more after that. @returns the new secret @throws OperatorError `not_found`, `stale`, `account_closed`
 */
export async function rotateSecret(
  nodes: RedisNodes,
  endpoint: Endpoint,
  overlapMs: number,
  actor: Actor,
  rules: WebhookRules,
): Promise<string> {
  const secret = rules.newSecret();
  const fields = { secret: rules.seal(secret) };
  const ifRevisions = [endpoint.revision];
  await change(nodes, endpoint, { fields, overlapMs, actor, ifRevisions, action: "webhook.rotate_secret" });
  return secret;
}

async function change(
  nodes: RedisNodes,
  { accountId, endpointId, partition }: Endpoint,
  wanted: Omit<Parameters<typeof webhook.keys>[0], "accountId" | "endpointId" | "partition">,
): Promise<void> {
  const redis = nodes.of(partition);
  nodes.requireWritable?.([redis]);
  const { outcome } = await scriptsOf(redis).run(webhook, { ...wanted, accountId, endpointId, partition });
  if (outcome === "stale") throw changedMeanwhile(`endpoint ${endpointId}`);
  if (outcome === "closed") throw closedAccount(accountId);
  if (outcome === "missing") throw noEndpoint(accountId, endpointId);
}

export const closedAccount = (accountId: string): OperatorError =>
  new OperatorError(
    `account ${accountId} is closed: its endpoints can be listed and deleted; nothing is changed or sent again`,
    "account_closed",
  );

const noEndpoint = (accountId: string, endpointId: string): OperatorError =>
  new OperatorError(`account ${accountId} has no webhook endpoint ${endpointId}`, "not_found");

function fieldsOf({ url, events, label, status }: EndpointChanges, rules: WebhookRules) {
  requireLabel(label ?? undefined);
  const checked = url === undefined ? undefined : rules.checkAddress(url);
  if (checked?.ok === false) throw new OperatorError(`url ${checked.reason}`, "invalid", "url");
  return given<string | null>({
    url: checked?.url,
    events: events && [...new Set(events)].sort().join(),
    label,
    status,
  });
}

async function readEndpoints(
  nodes: RedisNodes,
  partition: number,
  ids: readonly string[],
): Promise<(Endpoint | undefined)[]> {
  const redis = nodes.of(partition);
  const records = await many<EndpointRecord, string>(redis, ids, (pipe, id) =>
    pipe.hgetall(endpointNames(partition, id).endpoint),
  );
  const queues = ids.flatMap((id) => {
    const { firstTries, retries } = endpointNames(partition, id);
    return [firstTries, retries];
  });
  const sizes = await many<number, string>(redis, queues, (pipe, name) => pipe.zcard(name));
  return ids.map((id, at) => {
    const record = records[at]!;
    if (record.account_id === undefined || record.status === "deleted") return undefined;
    return endpointOf(partition, id, record, sizes[2 * at]! + sizes[2 * at + 1]!);
  });
}

const timeOf = (text: string | undefined): number | undefined =>
  text === undefined ? undefined : Number(text);

function endpointOf(
  partition: number,
  endpointId: string,
  record: EndpointRecord,
  waiting: number,
): Endpoint {
  return {
    endpointId,
    accountId: record.account_id ?? "",
    partition,
    url: record.url ?? "",
    events: (record.events ?? "").split(","),
    label: record.label,
    status: record.status as Endpoint["status"],
    disabledReason: record.disabled_reason as Endpoint["disabledReason"],
    previousUntilMs: timeOf(record.previous_until),
    createdAtMs: Number(record.created_at),
    revision: Number(record.revision ?? 0),
    failingSinceMs: timeOf(record.failing_since),
    deliveredAtMs: timeOf(record.delivered_at),
    dropped: Number(record.dropped ?? 0),
    droppedAtMs: timeOf(record.dropped_at),
    waiting,
  };
}

export interface WebhookRules {
  endpointsMax: number;
  newSecret(): string;
  /** For the store. */
  seal(secret: string): string;
  unseal(sealed: string): string;
  /** False for one that the key before has sealed. */
  isCurrent(sealed: string): boolean;
  /** The address to keep, or why none is called there. */
  checkAddress(url: string): { ok: true; url: string } | { ok: false; reason: string };
}

export const webhooksAreOff = (): OperatorError =>
  new OperatorError(
    "webhooks are off: set WEBHOOK_SECRET_KEY in the environment of the gateways, to at least 32 random characters",
    "webhooks_off",
  );

/** `failed`: endpoints whose present secret no key opens. They are left as they are. */
interface Resealed {
  looked: number;
  resealed: number;
  failed: { accountId: string; endpointId: string }[];
}

type Rules = Pick<WebhookRules, "seal" | "unseal" | "isCurrent">;

/** An endpoint that somebody changes meanwhile is read again this often. */
const READS_MAX = 5;

/** Seals the secrets of all endpoints with the present key, so that the key before is needed no more. May be repeated. */
export async function resealSecrets(nodes: RedisNodes, actor: Actor, rules: Rules): Promise<Resealed> {
  nodes.requireWritable?.(nodes.all());
  const result: Resealed = { looked: 0, resealed: 0, failed: [] };
  const partitions = await partitionsOf(nodes);
  for (let partition = 0; partition < partitions; partition++) {
    for await (const ids of listPages(nodes.of(partition), webhookNames(partition).endpoints)) {
      const secrets = await readSecrets(nodes, partition, ids);
      for (const [at, endpointId] of ids.entries()) {
        const { outcome, accountId } = await reseal(
          nodes,
          { partition, endpointId },
          secrets[at]!,
          actor,
          rules,
        );
        result.looked++;
        if (outcome === "resealed") result.resealed++;
        if (outcome === "failed") result.failed.push({ accountId, endpointId });
      }
    }
  }
  return result;
}

const SECRETS = ["secret", "previous_secret"] as const;
type Sealed = readonly (string | null)[];

const readSecrets = (nodes: RedisNodes, partition: number, ids: readonly string[]): Promise<Sealed[]> =>
  many<(string | null)[], string>(nodes.of(partition), ids, (pipe, id) =>
    pipe.hmget(endpointNames(partition, id).endpoint, "account_id", "revision", ...SECRETS),
  );

async function reseal(
  nodes: RedisNodes,
  { partition, endpointId }: { partition: number; endpointId: string },
  read: Sealed,
  actor: Actor,
  rules: Rules,
): Promise<{ outcome: "resealed" | "failed" | "nothing"; accountId: string }> {
  let stored = read;
  for (let reads = 0; reads < READS_MAX; reads++) {
    const [accountId, revision, ...sealed] = stored;
    if (!accountId) return { outcome: "nothing", accountId: "" };
    const fields = sealedAnew(sealed, rules);
    if (!fields) return { outcome: "failed", accountId };
    if (Object.keys(fields).length === 0) return { outcome: "nothing", accountId };
    const { outcome } = await scriptsOf(nodes.of(partition)).run(webhook, {
      ...{ partition, accountId, endpointId, fields, actor, action: "webhook.reseal" },
      ifRevisions: [Number(revision ?? 0)],
    });
    if (outcome !== "stale") return { outcome: outcome === "changed" ? "resealed" : "nothing", accountId };
    [stored = []] = await readSecrets(nodes, partition, [endpointId]);
  }
  return { outcome: "failed", accountId: stored[0] ?? "" };
}

/** Undefined if the present secret cannot be opened; an unreadable one before a rotation stays, since it signs no more. */
function sealedAnew(stored: Sealed, { seal, unseal, isCurrent }: Rules): Record<string, string> | undefined {
  const fields: Record<string, string> = {};
  for (const [at, field] of SECRETS.entries()) {
    const sealed = (stored[at] ?? "").split(" ");
    const anew: string[] = [];
    for (const one of sealed) {
      try {
        anew.push(one === "" || isCurrent(one) ? one : seal(unseal(one)));
      } catch {
        if (field === "secret") return undefined;
        anew.push(one);
      }
    }
    if (anew.some((one, index) => one !== sealed[index])) fields[field] = anew.join(" ");
  }
  return fields;
}
