import type { Actor } from "../../records/actor.ts";
import { endpointNames, webhookNames } from "../../records/names.ts";
import type { RedisNodes } from "../../redis/nodes.ts";
import { many } from "../../redis/pipelines.ts";
import { scriptsOf } from "../../redis/script-runner.ts";
import { listPages } from "../../redis/sorted-set-pages.ts";
import { partitionsOf } from "../../redis/store-facts.ts";
import { webhook } from "../../scripts/webhook.ts";
import type { WebhookRules } from "./webhook-rules.ts";

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

/**
 * Seals the secrets anew that have another key. Undefined if the present secret cannot be opened; one before a rotation that cannot be stays as it is, since
 * it signs no more.
 */
function sealedAnew(sealed: Sealed, { seal, unseal, isCurrent }: Rules): Record<string, string> | undefined {
  const fields: Record<string, string> = {};
  for (const [at, field] of SECRETS.entries()) {
    const one = sealed[at];
    if (!one || isCurrent(one)) continue;
    try {
      fields[field] = seal(unseal(one));
    } catch {
      if (field === "secret") return undefined;
    }
  }
  return fields;
}
