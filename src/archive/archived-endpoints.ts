import type { Redis } from "ioredis";
import { endpointNames, webhookNames, webhooksName } from "../records/names.ts";
import type { EndpointRecord } from "../records/records.ts";
import { many, manyByNode } from "../redis/pipelines.ts";
import type { RedisNodes } from "../redis/store-facts.ts";

/** Where the settings of an archived account have its webhook endpoints: JSON, records by id. */
export const ENDPOINTS_SETTING = "webhook_endpoints";

/** The record of a restored endpoint; its deliveries and their outcomes are not archived. */
const ARCHIVED_FIELDS: readonly (keyof EndpointRecord)[] = [
  ...(["account_id", "url", "events", "label", "status", "disabled_reason"] as const),
  ...(["secret", "previous_secret", "previous_until", "created_at", "revision"] as const),
];

/** The webhook endpoints of these accounts as JSON, with their sealed secrets; undefined for an account without one. */
export async function endpointsToArchive(
  redis: Redis,
  partition: number,
  accountIds: readonly string[],
): Promise<(string | undefined)[]> {
  const lists = await many<string[], string>(redis, accountIds, (pipe, accountId) =>
    pipe.zrange(webhooksName(partition, accountId), "0", "-1"),
  );
  const ids = lists.flat();
  const records = await many<EndpointRecord, string>(redis, ids, (pipe, id) =>
    pipe.hgetall(endpointNames(partition, id).endpoint),
  );
  const byId = new Map(ids.map((id, at) => [id, archived(records[at]!)]));
  return lists.map((own) =>
    own.length === 0 ? undefined : JSON.stringify(Object.fromEntries(own.map((id) => [id, byId.get(id)]))),
  );
}

const archived = (record: EndpointRecord): EndpointRecord =>
  Object.fromEntries(ARCHIVED_FIELDS.flatMap((field) => (field in record ? [[field, record[field]]] : [])));

/** The account's field `webhooks`, as lua/include/endpoints.lua writes it; undefined without an enabled endpoint. */
export function webhooksOf(endpoints = "{}"): string | undefined {
  const records = Object.entries(JSON.parse(endpoints) as Record<string, EndpointRecord>);
  const enabled = records.filter(([, { status }]) => status === "enabled");
  return enabled.map(([id, { events }]) => `${id}:${events}`).join(" ") || undefined;
}

interface ArchivedAccount {
  partition: number;
  accountId: string;
  /** JSON of `endpointsToArchive`. */
  endpoints: string;
}

/** As lua/webhooks/webhook.lua writes them, but for the field of their account. */
export async function restoreEndpoints(
  nodes: RedisNodes,
  accounts: readonly ArchivedAccount[],
): Promise<void> {
  const found = accounts.flatMap(({ endpoints, ...account }) =>
    Object.entries(JSON.parse(endpoints) as Record<string, EndpointRecord>).map(([id, record]) => {
      return { ...account, id, record };
    }),
  );
  await manyByNode(
    found,
    ({ partition }) => nodes.of(partition),
    (pipe, { partition, accountId, id, record }) =>
      pipe
        .hset(endpointNames(partition, id).endpoint, record)
        .zadd(webhooksName(partition, accountId), Number(record.created_at), id)
        .zadd(webhookNames(partition).endpoints, Number(record.created_at), id),
  );
}
