import { grantCredits, OperatorError } from "../../store/accounts.ts";
import type { Actor } from "../../store/actor.ts";
import { findKey, revokeKey } from "../../store/keys.ts";
import type { OperatorSession } from "../../store/operator-session.ts";
import { findTask, releaseTask } from "../../store/operator-tasks.ts";
import type { Outcomes } from "./answers.ts";

/** What an action did, and what the audit log says of it. */
interface Done<Outcome> {
  answer: Outcome;
  /** What it was done to, and with which numbers. */
  audit: { target: string } & Record<string, unknown>;
}

export interface Action<Outcome = object> {
  /** What it would be done to: for the audit line of one that fails. */
  target(body: Body): string;
  run(body: Body, actor: Actor): Promise<Done<Outcome>>;
}

type Body = Readonly<Record<string, unknown>>;

/**
 * What the console can change, by name under /console/api/: the same functions as the command line's.
 * @throws OperatorError for what an operator can mend, GatewayError `store_unavailable`
 */
export function createActions({ write, archive }: OperatorSession): {
  [Name in keyof Outcomes]: Action<Outcomes[Name]>;
} {
  return {
    release: {
      target: (body) => textOf(body, "id"),
      async run(body, actor) {
        const id = textOf(body, "id");
        // Looked up first: nothing that fails after the release may put it on record as failed.
        const { result, confirmed } = await write(async (nodes) => ({
          view: await findTask(nodes, id),
          release: await releaseTask(nodes, id, actor),
        }));
        const { release, view } = result;
        const account = { account_id: view.record.account_id };
        return {
          answer: { ...release, confirmed },
          audit: { target: id, ...account, ...release, confirmed },
        };
      },
    },
    grant: {
      target: (body) => textOf(body, "account_id"),
      async run(body, actor) {
        const [accountId, reference] = [textOf(body, "account_id"), textOf(body, "reference")];
        const { amount } = body;
        if (typeof amount !== "number") throw new OperatorError("amount must be a whole number of credits");
        const { result, confirmed } = await write((nodes) =>
          grantCredits(nodes, accountId, amount, reference, actor, archive.readArchived),
        );
        const { outcome, balance } = result;
        return {
          answer: { outcome, balance, confirmed },
          audit: { target: accountId, amount, reference, outcome, balance, confirmed },
        };
      },
    },
    revoke: {
      target: (body) => textOf(body, "key_id"),
      async run(body, actor) {
        const keyId = textOf(body, "key_id");
        const { result, confirmed } = await write(async (nodes) => {
          const key = await findKey(nodes, keyId);
          return { outcome: await revokeKey(nodes, key, actor), accountId: key.accountId };
        });
        const { outcome, accountId } = result;
        return {
          answer: { outcome, confirmed },
          audit: { target: keyId, account_id: accountId, outcome, confirmed },
        };
      },
    },
  };
}

/** A text that the audit log may repeat: never a key. */
function textOf(body: Body, name: string): string {
  const value = body[name];
  if (typeof value !== "string" || value === "" || value.length > 300) {
    throw new OperatorError(`${name} is missing: it must be a text of 1 to 300 characters`);
  }
  if (value.startsWith("sk_")) throw new OperatorError(`${name}: give an id, not the key itself`);
  return value;
}
