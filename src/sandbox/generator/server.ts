import { createServer, type IncomingMessage, type Server, type ServerResponse } from "node:http";
import { createServer as createTlsServer } from "node:https";
import type { AddressInfo } from "node:net";
import { answering, type Behaviour, DEFAULT_BEHAVIOUR } from "./behaviour.ts";
import { createCallbacks } from "./callbacks.ts";
import { selfSignedCertificate } from "./certificate.ts";
import { send } from "./generator-answer.ts";
import { DIALECTS } from "./generator-dialect.ts";
import {
  type GeneratorOptions,
  generate,
  poll,
  type State,
  serve,
  steer,
  upload,
} from "./generator-routes.ts";
import { createTaskStore } from "./generator-tasks.ts";
import { createRequestRecorder, type RequestLog } from "./request-log.ts";
import { createUploadStore } from "./uploads.ts";

export interface Generator {
  url: string;
  port: number;
  tlsUrl: string;
  requests: RequestLog[];
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
    recorder: createRequestRecorder(),
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
    requests: state.recorder.requests,
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
  const log = state.recorder.enter(request, state.now());
  if (!isAuthorized(state, request))
    return send(response, dialect.failure({ status: 401, message: "Invalid API key" }), plainly);
  const route = dialect.routeOf(request.method ?? "", new URL(url, "http://sandbox"));
  switch (route?.kind) {
    case "upload":
      return upload(state, request, response, log);
    case "poll":
      return poll(state, response, log, route.taskId);
    case "generation":
      return generate(state, request, response, log);
    case undefined:
      return send(response, dialect.failure({ status: 404, message: "No such endpoint" }), plainly);
  }
}

function isAuthorized(state: State, request: IncomingMessage): boolean {
  const token = /^Bearer +(\S+)$/i.exec(request.headers.authorization ?? "")?.[1];
  return token !== undefined && (state.options.apiKey === undefined || token === state.options.apiKey);
}
