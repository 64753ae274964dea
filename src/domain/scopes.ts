export const SCOPES = [
  "accounts:read",
  "accounts:write",
  "accounts:reinstate",
  "keys:read",
  "keys:write",
  "credits:read",
  "credits:write",
  "tasks:read",
  "tasks:write",
  "usage:read",
  "maintenance:write",
  "webhooks:write",
  "tokens:write",
  "audit:read",
] as const;
export type Scope = (typeof SCOPES)[number];

/** Undefined accounts: all; undefined end: permanent. */
interface Rights {
  scopes: readonly Scope[];
  accounts?: readonly string[] | undefined;
  expiresAtMs?: number | undefined;
}

export function exceededRight(own: Rights, wanted: Rights): string | undefined {
  const scope = wanted.scopes.find((one) => !own.scopes.includes(one));
  if (scope !== undefined)
    return `a token cannot make one with more than it has: it lacks the scope ${scope}`;
  const ownEndMs = own.expiresAtMs ?? Number.POSITIVE_INFINITY;
  if ((wanted.expiresAtMs ?? Number.POSITIVE_INFINITY) > ownEndMs)
    return `a token cannot make one that outlives it: expires_at must be ${new Date(ownEndMs).toISOString()} or earlier`;
  if (own.accounts === undefined) return undefined;
  if (wanted.accounts === undefined) return "a token for some accounts cannot make one for all";
  const account = wanted.accounts.find((one) => !own.accounts?.includes(one));
  return account === undefined ? undefined : `this token may not use the account ${account}`;
}
