import { once } from "node:events";
import { createServer, type IncomingMessage, type Server, type ServerResponse } from "node:http";
import type { AddressInfo, Socket } from "node:net";
import type { UpstreamEvent } from "./history.ts";
import { json, KINDS } from "./upstream-kinds.ts";

/** Wishes of a generation to this upstream, in its prompt or its first shot: `kind=reset life=200 fails=1`. */
export interface Wish {
  /** One of KINDS; `ok` answers as it should. */
  kind: string;
  /** How long the task runs, ms. */
  lifeMs: number;
  fails: boolean;
  /** Before the answer, ms. */
  delayMs: number;
  /** From which age on, and until which, it is difficult about polls, ms; for kinds that go by it. */
  badFromMs: number;
  badToMs: number;
  /** Whatever lets a scenario know its request again. */
  tag: string;
}

/** The forms that it understands, told apart by their paths. */
export type FaultDialect = "envelope" | "kie";

/** How a state is said: HTTP status, the envelope's code, and the word for the state. */
export interface Saying {
  http?: number;
  code?: number;
  word?: string;
}

export interface UpstreamTask {
  id: string;
  wish: Wish;
  madeMs: number;
  polls: number;
  event: UpstreamEvent;
  /** Which of its addresses made it. */
  site: number;
  /** The adapter that made it: it answers polls in no other form. */
  dialect: FaultDialect;
  /** The request that was given its id last: polls are shown that one's video. */
  latestRequestId: string;
}

/** Moments at which a scenario may strike. `drop` as the answer ends the exchange without one. */
export interface UpstreamHooks {
  connection?(gateway: string, socket: Socket): void;
  /** A generation was read and its task made; nothing is answered yet. */
  read?(event: UpstreamEvent, wish: Wish): "drop" | undefined;
  /** The answer's last byte was handed to the kernel. */
  answered?(event: UpstreamEvent, wish: Wish): void;
  poll?(gateway: string, task: UpstreamTask): "drop" | undefined;
}

interface Listener {
  url: string;
  /** Whose connections it takes now. */
  gateway: string;
}

export const wishText = (wish: Partial<Wish>): string =>
  `kind=${wish.kind ?? "ok"} life=${wish.lifeMs ?? 50} fails=${wish.fails ? 1 : 0} ` +
  `delay=${wish.delayMs ?? 0} bad=${wish.badFromMs ?? 0}-${wish.badToMs ?? 0} tag=${wish.tag ?? ""}`;

/** A gateway's body: a prompt, the shots of a storyboard, or the address of a video with a query. */
interface SentBody {
  prompt?: string;
  shots?: { Scene: string }[];
  videoUrl?: string;
  callBackUrl?: string;
}

/** A gateway's body with the adapter kie. */
interface KieBody {
  input: SentBody;
  callBackUrl?: string;
}

function readWish({ prompt, shots, videoUrl }: SentBody): Wish {
  const text = prompt ?? shots?.[0]?.Scene ?? videoUrl ?? "";
  const fields = Object.fromEntries(text.split(/[ ?&]/).map((pair) => pair.split("="))) as Record<
    string,
    string
  >;
  const [badFromMs = 0, badToMs = 0] = (fields.bad ?? "").split("-").map(Number);
  return {
    kind: fields.kind ?? "ok",
    lifeMs: Number(fields.life),
    fails: fields.fails === "1",
    delayMs: Number(fields.delay),
    badFromMs,
    badToMs,
    tag: fields.tag ?? "",
  };
}

/** The video generation service in miniature, with a log of everything, which misbehaves as each request asks it to. */
export class FaultUpstream {
  readonly events: UpstreamEvent[] = [];
  readonly #byRequest = new Map<string, UpstreamEvent>();
  readonly #tasks = new Map<string, UpstreamTask>();
  readonly #servers: Server[] = [];
  /** By slot and site. */
  readonly #listeners = new Map<string, Listener>();
  readonly #sockets = new Set<Socket>();
  #hooks: UpstreamHooks = {};
  /** A task that a gateway has asked for, so that it is bound for certain. */
  #settledTaskId = "";
  #made = 0;
  /** How the last generation was asked for. */
  latestDialect: FaultDialect = "envelope";

  /**
   * A listener for the gateways of one slot, by which the log knows who asked: the one that was named last when the
   * connection was made. A fleet's tasks thus have few addresses. @returns its URL
   * @param site another address: it knows only the tasks that were made there
   */
  async listen(slot: number, gateway: string, site = 0): Promise<string> {
    const name = `${slot} ${site}`;
    const listener = this.#listeners.get(name) ?? (await this.#openListener(site));
    this.#listeners.set(name, listener);
    listener.gateway = gateway;
    return listener.url;
  }

  steer(next: UpstreamHooks): void {
    this.#hooks = next;
  }

  stop(): void {
    for (const server of this.#servers) server.close();
    for (const socket of this.#sockets) socket.destroy();
  }

  async #openListener(site: number): Promise<Listener> {
    const listener: Listener = { url: "", gateway: "" };
    const askers = new WeakMap<Socket, string>();
    const server = createServer({ keepAliveTimeout: 10_000 }, (request, response) => {
      response.on("error", () => undefined);
      const gateway = askers.get(request.socket)!;
      const path = request.url ?? "";
      const dialect = path.startsWith("/api/v1/jobs/") ? "kie" : "envelope";
      if (request.method === "GET")
        this.#poll(
          gateway,
          { site, dialect },
          response,
          path.slice(Math.max(path.lastIndexOf("/"), path.indexOf("=")) + 1),
        );
      // A gateway that was killed goes in the middle of a request.
      else this.#generation(gateway, { site, dialect }, request, response).catch(() => response.destroy());
    });
    server.on("connection", (socket) => {
      const { gateway } = listener;
      askers.set(socket, gateway);
      this.#sockets.add(socket);
      socket.once("close", () => this.#sockets.delete(socket));
      socket.on("error", () => undefined);
      this.#hooks.connection?.(gateway, socket);
    });
    this.#servers.push(server);
    server.listen(0, "127.0.0.1");
    await once(server, "listening");
    listener.url = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
    return listener;
  }

  async #generation(
    gateway: string,
    { site, dialect }: Pick<UpstreamTask, "site" | "dialect">,
    request: IncomingMessage,
    response: ServerResponse,
  ): Promise<void> {
    const chunks: Buffer[] = [];
    for await (const chunk of request as AsyncIterable<Buffer>) chunks.push(chunk);
    const body = JSON.parse(Buffer.concat(chunks).toString()) as SentBody | KieBody;
    const wish = readWish("input" in body ? body.input : body);
    this.latestDialect = dialect;
    const event = this.#enter(gateway, { site, dialect }, String(request.headers["idempotency-key"]), wish);
    if (body.callBackUrl !== undefined) event.callBackUrl = body.callBackUrl;
    response.once("finish", () => {
      if (response.socket?.destroyed) return;
      event.answeredMs ||= Date.now();
      this.#hooks.answered?.(event, wish);
    });
    if (this.#hooks.read?.(event, wish) === "drop") return;
    if (wish.delayMs > 0) await new Promise((resolve) => setTimeout(resolve, wish.delayMs));
    if (response.socket?.destroyed) return;
    if (dialect === "kie") json(response, 200, { code: 200, msg: "success", data: { taskId: event.taskId } });
    else await KINDS[wish.kind]!.answer(response, event.taskId);
  }

  /** Logs a generation, and makes its task. */
  #enter(
    gateway: string,
    { site, dialect }: Pick<UpstreamTask, "site" | "dialect">,
    requestId: string,
    wish: Wish,
  ): UpstreamEvent {
    const earlier = this.#byRequest.get(requestId);
    if (earlier) {
      earlier.arrivals++;
      return earlier;
    }
    const { truth, taskId: wished } = KINDS[wish.kind]!;
    const taskId = wished?.(this.#settledTaskId, wish) ?? (truth === "no" ? "" : `task_${++this.#made}`);
    const event: UpstreamEvent = {
      requestId,
      gateway,
      atMs: Date.now(),
      kind: wish.kind,
      truth,
      site,
      taskId,
      answeredMs: 0,
      polledStates: [],
      polledMs: [],
      arrivals: 1,
    };
    if (!wish.fails && taskId !== "") event.completesMs = event.atMs + wish.lifeMs;
    const latestRequestId = requestId;
    const earlierTask = this.#tasks.get(taskId);
    if (earlierTask) earlierTask.latestRequestId = requestId;
    else if (taskId !== "") {
      const madeMs = Date.now();
      this.#tasks.set(taskId, { id: taskId, wish, madeMs, polls: 0, event, site, dialect, latestRequestId });
    }
    this.#byRequest.set(requestId, event);
    this.events.push(event);
    return event;
  }

  #poll(
    gateway: string,
    { site, dialect }: Pick<UpstreamTask, "site" | "dialect">,
    response: ServerResponse,
    taskId: string,
  ): void {
    const task = this.#tasks.get(taskId);
    if (task?.site !== site || task.dialect !== dialect) {
      json(response, 404, { code: 404, msg: "Task not found" });
      return;
    }
    task.polls++;
    if (this.#hooks.poll?.(gateway, task) === "drop") return;
    const ended = Date.now() - task.madeMs >= task.wish.lifeMs;
    const status = !ended ? "processing" : task.wish.fails ? "failed" : "completed";
    const tell = (state: string, { http = 200, code = 200, word = state }: Saying = {}): void => {
      task.event.polledStates.push(state);
      task.event.polledMs.push(Date.now());
      this.#settledTaskId = taskId;
      const video_url = `https://videos.example/${taskId}.mp4`;
      const video = state === "completed" ? { video: task.latestRequestId, video_url } : {};
      const created_at = new Date(task.madeMs).toISOString();
      const data =
        dialect === "kie" ? kieRecord(task, state) : { task_id: taskId, status: word, created_at, ...video };
      json(response, http, { code, msg: "success", data });
    };
    const special = KINDS[task.wish.kind]!.poll;
    if (special) special(response, task, status, tell);
    else tell(status);
  }
}

const KIE_STATES: Readonly<Record<string, string>> = { completed: "success", failed: "fail" };

const kieRecord = ({ id, madeMs }: UpstreamTask, status: string) => ({
  taskId: id,
  state: KIE_STATES[status] ?? "generating",
  resultJson:
    status === "completed" ? JSON.stringify({ resultUrls: [`https://videos.example/${id}.mp4`] }) : "",
  createTime: madeMs,
});
