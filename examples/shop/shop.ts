import { randomUUID } from "node:crypto";
import { createServer, type IncomingMessage, type Server } from "node:http";
import type { AddressInfo } from "node:net";
import { createTollgate, type Tollgate, TollgateError } from "./tollgate.ts";

/** A customer who spends more a month has to ask for it. */
const MONTHLY_CREDITS = 100_000;
const BODY_BYTES_MAX = 10_000;

/** A mistake of the shop's own client. */
class ShopError extends Error {
  readonly status: number;

  constructor(status: number, message: string) {
    super(message);
    this.status = status;
  }
}

type Route = (ids: string[], body: Record<string, unknown>) => Promise<object>;

/**
 * The shop's routes. It keeps nothing: a customer's id is the account's, an order's id is the reference of its
 * grant. A real shop has customers, orders and log-ins of its own around this.
 */
function routesOf(tollgate: Tollgate): [method: string, path: RegExp, Route][] {
  return [
    ["POST", /^\/customers$/, (_, { email }) => signUp(tollgate, textOf("email", email))],
    ["GET", /^\/packages$/, () => tollgate.packages()],
    ["GET", /^\/customers\/([^/]+)$/, ([id = ""]) => showCustomer(tollgate, id)],
    // The payment provider calls this, and again until it gets a 200.
    [
      "POST",
      /^\/customers\/([^/]+)\/orders\/([^/]+)\/paid$/,
      async ([id = "", order = ""], body) => {
        const { amount, balance } = await tollgate.grant(
          id,
          textOf("package", body.package),
          `order:${order}`,
        );
        return { credits: amount, balance };
      },
    ],
    // The bank has taken the money back.
    [
      "POST",
      /^\/customers\/([^/]+)\/orders\/([^/]+)\/charged-back$/,
      async ([id = "", order = ""], body) => {
        const reason = textOf("reason", body.reason);
        const { reversed, balance } = await tollgate.reverse(
          id,
          `order:${order}`,
          `chargeback:${order}`,
          reason,
        );
        return { reversed, balance };
      },
    ],
    ["POST", /^\/customers\/([^/]+)\/new-key$/, ([id = ""]) => newKey(tollgate, id)],
    ["POST", /^\/leaked-keys$/, (_, { api_key }) => replaceLeaked(tollgate, textOf("api_key", api_key))],
    [
      "GET",
      /^\/customers\/([^/]+)\/statements\/([^/]+)$/,
      ([id = "", month = ""]) => tollgate.statement(id, month),
    ],
    ["POST", /^\/customers\/([^/]+)\/close$/, ([id = ""]) => tollgate.setStatus(id, "closed")],
    ["POST", /^\/customers\/([^/]+)\/suspend$/, ([id = ""]) => tollgate.setStatus(id, "suspended")],
    ["POST", /^\/customers\/([^/]+)\/resume$/, ([id = ""]) => tollgate.setStatus(id, "active")],
    [
      "POST",
      /^\/customers\/([^/]+)\/complaints$/,
      ([id = ""], body) =>
        refund(tollgate, id, textOf("task_id", body.task_id), textOf("reason", body.reason)),
    ],
  ];
}

/** Makes an account and its first key, which is shown once. */
async function signUp(tollgate: Tollgate, email: string): Promise<object> {
  const customerId = `cus_${randomUUID()}`;
  // Nobody else has this id, so an account that is there already is ours: the answer to an earlier try was lost.
  await tollgate.createAccount(customerId, email).catch(unlessConflict);
  return { customer_id: customerId, api_key: await keyOnce(tollgate, customerId, "first-key") };
}

/**
 * A key by the name of the request for it. The key itself is in one answer only: where that was lost, nobody has the key, and it is
 * replaced.
 */
async function keyOnce(
  tollgate: Tollgate,
  customerId: string,
  requestId: string,
): Promise<string | undefined> {
  return tryTwice(async () => {
    const { key, key_id, rotated_to } = await tollgate.createKey(customerId, requestId, MONTHLY_CREDITS);
    return key ?? (await tollgate.rotateKey(customerId, rotated_to ?? key_id, "0s")).key;
  });
}

/** A conflict says that the key was rotated and the answer was lost; the second time that is known. */
const tryTwice = async (rotate: () => Promise<string | undefined>): Promise<string | undefined> =>
  (await rotate().catch(unlessConflict)) ?? (await rotate());

/** A new key; the one before goes on for a day. */
async function newKey(tollgate: Tollgate, customerId: string): Promise<object> {
  const key = await tryTwice(async () => {
    const keys = await tollgate.keys(customerId);
    const latest = keys.find(({ status, rotated_to }) => status === "active" && rotated_to === null);
    if (latest === undefined) throw new ShopError(404, "no such key");
    return (await tollgate.rotateKey(customerId, latest.key_id, "24h")).key;
  });
  return { api_key: key };
}

/** Ends a key that has leaked at once, and gives its customer another one. */
async function replaceLeaked(tollgate: Tollgate, apiKey: string): Promise<object> {
  const { account_id: customerId, key_id: keyId } = await tollgate.lookUpKey(apiKey);
  await tollgate.revokeKey(customerId, keyId);
  return { customer_id: customerId, api_key: await keyOnce(tollgate, customerId, `leaked:${keyId}`) };
}

function unlessConflict(error: unknown): undefined {
  if (!(error instanceof TollgateError && error.status === 409)) throw error;
}

/** The balance, and what was used in the last 30 days. */
async function showCustomer(tollgate: Tollgate, id: string): Promise<object> {
  const day = (ms: number): string => new Date(ms).toISOString().slice(0, 10);
  const now = Date.now();
  const [{ label, status, balance }, usage] = await Promise.all([
    tollgate.account(id),
    tollgate.usage(id, day(now - 29 * 86_400_000), day(now)),
  ]);
  return { email: label, status, balance, usage };
}

/** Refunds a video that a customer complains about; a second complaint about the same one changes nothing. */
async function refund(tollgate: Tollgate, id: string, taskId: string, reason: string): Promise<object> {
  const task = await tollgate.task(taskId);
  if (task.account_id !== id) throw new ShopError(404, "no such video");
  const { amount, balance } = await tollgate.refund(taskId, reason, `complaint:${taskId}`);
  return { refunded: amount, balance };
}

/** The shop's own HTTP interface. */
export function createShop(tollgate: Tollgate): Server {
  const routes = routesOf(tollgate);

  async function answer(req: IncomingMessage): Promise<object> {
    const path = (req.url ?? "").split("?")[0] ?? "";
    for (const [method, pattern, route] of routes) {
      const match = req.method === method ? pattern.exec(path) : null;
      if (match) return route(match.slice(1).map(decodeURIComponent), await readJson(req));
    }
    throw new ShopError(404, "no such page");
  }

  return createServer((req, res) => {
    const send = (status: number, body: object): void => {
      res.writeHead(status, { "Content-Type": "application/json" }).end(`${JSON.stringify(body)}\n`);
    };
    answer(req).then(
      (body) => send(200, body),
      (error: unknown) => {
        if (error instanceof ShopError) return send(error.status, { error: error.message });
        if (
          error instanceof TollgateError &&
          error.status < 500 &&
          error.status !== 401 &&
          error.status !== 403
        )
          return send(error.status, { error: error.message });
        // Our token, our network: not the customer's mistake.
        console.error(error);
        send(502, { error: "this does not work at the moment" });
      },
    );
  });
}

async function readJson(req: IncomingMessage): Promise<Record<string, unknown>> {
  let text = "";
  for await (const chunk of req.setEncoding("utf8")) {
    text += chunk;
    if (text.length > BODY_BYTES_MAX) throw new ShopError(413, "too large");
  }
  try {
    return text === "" ? {} : (JSON.parse(text) as Record<string, unknown>);
  } catch {
    throw new ShopError(400, "the body must be JSON");
  }
}

function textOf(name: string, value: unknown): string {
  if (typeof value !== "string" || value === "") throw new ShopError(400, `${name} must be a text`);
  return value;
}

if (import.meta.main) {
  const { TOLLGATE_URL = "http://127.0.0.1:9090", TOLLGATE_TOKEN = "", PORT = "3000" } = process.env;
  if (!TOLLGATE_TOKEN) {
    console.error("Set TOLLGATE_TOKEN; README.md says how to make one.");
    process.exit(1);
  }
  const shop = createShop(createTollgate({ url: TOLLGATE_URL, token: TOLLGATE_TOKEN }));
  shop.listen(Number(PORT), "127.0.0.1", () => {
    const { port } = shop.address() as AddressInfo;
    console.log(`The shop is at http://127.0.0.1:${port}`);
  });
}
