import { generateKeyPairSync, randomBytes, sign } from "node:crypto";
import { createServer, type IncomingMessage, type Server, type ServerResponse } from "node:http";
import { createServer as createTlsServer } from "node:https";
import type { AddressInfo } from "node:net";
import { answering, type Behaviour, DEFAULT_BEHAVIOUR } from "./behaviour.ts";
import { send } from "./generator-answer.ts";
import { DIALECTS } from "./generator-dialect.ts";
import {
  createCallbacks,
  type GeneratorOptions,
  generate,
  poll,
  type State,
  serve,
  steer,
  upload,
} from "./generator-routes.ts";
import { createTaskStore } from "./generator-tasks.ts";
import { createUploadStore } from "./uploads.ts";

export interface Generator {
  url: string;
  port: number;
  tlsUrl: string;
  behave(changes: Partial<Behaviour>): void;
  reset(): void;
  stop(): Promise<void>;
}

/** @throws when a port is taken (`EADDRINUSE`) */
export async function startGenerator(options: GeneratorOptions = {}): Promise<Generator> {
  const { host = "127.0.0.1", port = 0, tlsPort = 0, now = Date.now, callbackRetryMs = 1_000 } = options;
  let url = "";
  const dialect = DIALECTS[options.as ?? "envelope"];
  const state: State = {
    options,
    dialect,
    behaviour: { ...DEFAULT_BEHAVIOUR, ...options.behaviour },
    tasks: createTaskStore(options.tasksMax ?? 100_000, now, () => options.publicUrl ?? url),
    uploads: createUploadStore(now, dialect.uploadKeptMs),
    callbacks: createCallbacks(callbackRetryMs),
    now,
    uploadBase: "",
  };
  const listener = (request: IncomingMessage, response: ServerResponse) => {
    handle(state, request, response).catch(() => response.destroy());
  };
  // Longer than clients keep idle connections.
  const settings = { keepAliveTimeout: 65_000 };
  const server = createServer(settings, listener);
  const tlsServer = createTlsServer({ ...settings, ...selfSignedCertificate() }, listener);
  const boundPort = await listen(server, port, host);
  const boundTlsPort = await listen(tlsServer, tlsPort, host).catch(async (error: unknown) => {
    await close(server);
    throw error;
  });
  const name = reachableHost(host);
  url = `http://${name}:${boundPort}`;
  const tlsUrl = `https://${name}:${boundTlsPort}`;
  state.uploadBase = options.publicUrl?.startsWith("https:") ? options.publicUrl : tlsUrl;
  return {
    url,
    port: boundPort,
    tlsUrl,
    behave: (changes) => steer(state, { ...state.behaviour, ...changes }),
    reset: () => steer(state, {}),
    stop: async () => {
      state.callbacks.stop();
      await Promise.all([close(server), close(tlsServer)]);
    },
  };
}

export function reachableHost(host: string): string {
  if (host === "0.0.0.0" || host === "::") return "127.0.0.1";
  return host.includes(":") ? `[${host}]` : host;
}

function listen(server: Server, port: number, host: string): Promise<number> {
  return new Promise((resolve, reject) => {
    server.once("error", reject);
    server.listen(port, host, () => resolve((server.address() as AddressInfo).port));
  });
}

function close(server: Server): Promise<void> {
  return new Promise((resolve) => {
    server.close(() => resolve());
    server.closeAllConnections();
  });
}

async function handle(state: State, request: IncomingMessage, response: ServerResponse): Promise<void> {
  const url = request.url ?? "";
  const path = url.replace(/\?.*/s, "");
  const plainly = answering(DEFAULT_BEHAVIOUR, "generation");
  if (!path.startsWith("/api/")) return send(response, await serve(state, request, path), plainly);

  const { dialect } = state;
  const notes = state.options.record?.(request, state.now());
  if (!isAuthorized(state, request))
    return send(response, dialect.failure({ status: 401, message: "Invalid API key" }), plainly);
  const route = dialect.routeOf(request.method ?? "", new URL(url, "http://sandbox"));
  switch (route?.kind) {
    case "upload":
      return upload(state, request, response, notes);
    case "poll":
      return poll(state, response, notes, route.taskId);
    case "generation":
      return generate(state, request, response, notes);
    case undefined:
      return send(response, dialect.failure({ status: 404, message: "No such endpoint" }), plainly);
  }
}

function isAuthorized(state: State, request: IncomingMessage): boolean {
  const token = /^Bearer +(\S+)$/i.exec(request.headers.authorization ?? "")?.[1];
  return token !== undefined && (state.options.apiKey === undefined || token === state.options.apiKey);
}

const DAY_MS = 86_400_000;

function der(tag: number, ...parts: Buffer[]): Buffer {
  const content = Buffer.concat(parts);
  if (content.length < 128) return Buffer.concat([Buffer.from([tag, content.length]), content]);
  return Buffer.concat([Buffer.from([tag, 0x82, content.length >> 8, content.length & 255]), content]);
}

const sequence = (...parts: Buffer[]) => der(0x30, ...parts);
const oid = (hex: string) => der(0x06, Buffer.from(hex, "hex"));
const time = (ms: number) => {
  const digits = new Date(ms).toISOString().replace(/[-:T]/g, "");
  return der(0x17, Buffer.from(`${digits.slice(2, 14)}Z`));
};

/** A self-signed certificate for localhost, made at each start. RFC 5280. */
export function selfSignedCertificate(validDays = 365): { key: string; cert: string } {
  const { privateKey, publicKey } = generateKeyPairSync("ec", { namedCurve: "P-256" });
  const ecdsaWithSha256 = sequence(oid("2a8648ce3d040302"));
  const name = sequence(der(0x31, sequence(oid("550403"), der(0x0c, Buffer.from("tollgate sandbox")))));
  const hosts = sequence(der(0x82, Buffer.from("localhost")), der(0x87, Buffer.from([127, 0, 0, 1])));
  const alternativeNames = sequence(oid("551d11"), der(0x04, hosts));
  const body = sequence(
    der(0xa0, der(0x02, Buffer.from([2]))),
    der(0x02, Buffer.concat([Buffer.from([1]), randomBytes(8)])),
    ecdsaWithSha256,
    name,
    sequence(time(Date.now() - DAY_MS), time(Date.now() + validDays * DAY_MS)),
    name,
    publicKey.export({ type: "spki", format: "der" }),
    der(0xa3, sequence(alternativeNames)),
  );
  const signature = der(0x03, Buffer.from([0]), sign("sha256", body, privateKey));
  const base64 = sequence(body, ecdsaWithSha256, signature).toString("base64");
  const lines = base64.match(/.{1,64}/g)!.join("\n");
  return {
    key: privateKey.export({ type: "pkcs8", format: "pem" }).toString(),
    cert: `-----BEGIN CERTIFICATE-----\n${lines}\n-----END CERTIFICATE-----\n`,
  };
}
