import { randomUUID } from "node:crypto";
import { givenGateway, type Reply, send, type TestGateway, until } from "../support/gateway.ts";

export const ADMIN_TOKEN = "correct-horse-battery-staple";

export type ManageStage = Awaited<ReturnType<typeof givenManageStage>>;

export interface ManageRequest {
  token?: string | null;
  body?: unknown;
  headers?: Record<string, string>;
}

/** A gateway, and calls of its management API as a company's backend makes them. */
export async function givenManageStage(options: Parameters<typeof givenGateway>[0] = {}) {
  const gateway: TestGateway = await givenGateway({
    ...options,
    config: { ...options.config, admin: { ...options.config?.admin, token: ADMIN_TOKEN } },
  });
  await until(
    async () => (await fetch(`${gateway.adminUrl}/readyz`)).status === 200,
    "the gateway to be ready",
  );

  /** @param request.token null for none; the gateway's ADMIN_TOKEN when left out */
  function manage(method: string, path: string, request: ManageRequest = {}): Promise<Reply> {
    const { token = ADMIN_TOKEN, ...rest } = request;
    const headers = { ...(token === null ? {} : { authorization: `Bearer ${token}` }), ...rest.headers };
    return send(gateway.adminUrl, method, `/manage/v1${path}`, { ...rest, headers });
  }

  /** An account of its own, with a key where credits are given. */
  async function givenAccount(credits = 0) {
    const accountId = `t-${randomUUID()}`;
    await manage("POST", "/accounts", { body: { account_id: accountId } });
    if (credits > 0) {
      await manage("POST", `/accounts/${accountId}/grants`, { body: { credits, reference: "first" } });
    }
    return accountId;
  }

  /** @returns the answer of a key's creation, with the key itself */
  async function givenKey(accountId: string, body: Record<string, unknown> = {}) {
    const headers = { "Idempotency-Key": randomUUID() };
    return (await manage("POST", `/accounts/${accountId}/keys`, { body, headers })).body;
  }

  /** @returns a token with these scopes */
  async function givenToken(scopes: string[], more: Record<string, unknown> = {}): Promise<string> {
    return (await manage("POST", "/tokens", { body: { label: "test", scopes, ...more } })).body.token;
  }

  return { gateway, manage, givenAccount, givenKey, givenToken, stop: gateway.stop };
}
