import type { Actor } from "../../records/actor.ts";
import { endpointNames, webhookNames } from "../../records/names.ts";
import type { RedisNodes } from "../../redis/nodes.ts";
import { many } from "../../redis/pipelines.ts";
import { scriptsOf } from "../../redis/script-runner.ts";
import { listPages } from "../../redis/sorted-set-pages.ts";
import { partitionsOf } from "../../redis/store-facts.ts";
import { webhook } from "../../scripts/webhook.ts";
import type { WebhookRules } from "./webhook-rules.ts";

/** `failed`: endpoints whose secret neither key opens. They are left as they are. */
interface Resealed {
  looked: number;
  resealed: number;
  failed: string[];
}

/** Seals the secrets of all endpoints with the present key, so that the key before is needed no more. May be repeated. */
export async function resealSecrets(
  nodes: RedisNodes,
  actor: Actor,
  rules: Pick<WebhookRules, "seal" | "unseal" | "isCurrent">,
): Promise<Resealed> {
  const result: Resealed = { looked: 0, resealed: 0, failed: [] };
  const partitions = await partitionsOf(nodes);
  for (let partition = 0; partition < partitions; partition++) {
    const redis = nodes.of(partition);
    for await (const ids of listPages(redis, webhookNames(partition).endpoints)) {
      const secrets = await many<(string | null)[], string>(redis, ids, (pipe, id) =>
        pipe.hmget(endpointNames(partition, id).endpoint, "account_id", "revision", ...SECRETS),
      );
      for (const [at, endpointId] of ids.entries()) {
        const [accountId, revision, ...sealed] = secrets[at]!;
        result.looked++;
        if (!accountId || sealed.every((one) => one === null || rules.isCurrent(one))) continue;
        const fields = sealedAnew(sealed, rules);
        if (!fields) result.failed.push(endpointId);
        if (!fields) continue;
        const call = { partition, accountId, endpointId, fields, actor, action: "webhook.reseal" as const };
        const { outcome } = await scriptsOf(redis).run(webhook, {
          ...call,
          ifRevisions: [Number(revision ?? 0)],
        });
        if (outcome === "changed") result.resealed++;
      }
    }
  }
  return result;
}

const SECRETS = ["secret", "previous_secret"] as const;

/** Undefined if a secret cannot be opened. */
function sealedAnew(
  sealed: readonly (string | null)[],
  { seal, unseal }: Pick<WebhookRules, "seal" | "unseal">,
): Record<string, string> | undefined {
  try {
    return Object.fromEntries(
      SECRETS.flatMap((field, at) => {
        const one = sealed[at];
        return one ? [[field, seal(unseal(one))]] : [];
      }),
    );
  } catch {
    return undefined;
  }
}
