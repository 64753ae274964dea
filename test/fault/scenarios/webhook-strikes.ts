import { setTimeout as pause } from "node:timers/promises";
import { CALLBACK, type ReceivedMessage } from "../history.ts";
import type { Action, Passing } from "../redis-proxy.ts";
import type { Receiver } from "../webhook-receiver.ts";
import type { WebhookStage } from "../webhook-stage.ts";
import { type World, within } from "../world.ts";

/** SIGKILL of the gateway that is at this step, seen at the proxy or at the receiver. */
const STEPS = [
  "OBSERVE at the store, not run",
  "OBSERVE run, its reply withheld",
  "LEASE run, its reply withheld",
  "a message is being sent",
  "answered 2xx, no SETTLE",
  "SETTLE at the store, not run",
  "SETTLE run, its reply withheld",
  "a sender stands still",
] as const;
const STANDING: Step = "a sender stands still";
type Step = (typeof STEPS)[number];
const OTHERS = ["store frozen", "store killed", "links cut", "receiver down"] as const;
export type Strike = Step | (typeof OTHERS)[number];
export const STRIKES: readonly Strike[] = [...STEPS, ...OTHERS];

/** A step comes while there is traffic, also on a busy machine. */
const REACH_MS = 20_000;
/** The other try has not ended when the sender that stood still says what came of its own. */
const HELD_BESIDE_MS = 500;
const LEASED =
  /\$\d+\r\n((?:we_|callback@)[^\r]*)\r\n\$\d+\r\n(evt_[^\r]+)\r\n\$\d+\r\n\w+\r\n\$\d+\r\n(\d+)\r\n/g;
const idOf = (endpointId: string): string => (endpointId.startsWith(CALLBACK) ? CALLBACK : endpointId);

/** A step to wait for; `slot` is that of the gateway that has reached it. */
interface Wanted {
  step: Step;
  slot: number;
  /** Of a sender that stands still: what it was sending, and whether another gateway has sent it. */
  name?: string;
  isSentAgain?: boolean;
}

const endsTask = ({ items }: Passing): boolean =>
  items.some(({ args }) => args[2] === "completed" || args[2] === "failed");
const settles = ({ items }: Passing): boolean => items.some(({ args }) => args[4] === "delivered");

/** Watches the link and the receiver, notes leases and how tries are settled, and strikes the gateway that reaches a step. */
export class Striker {
  readonly #world: World;
  readonly #webhooks: WebhookStage;
  /** By endpoint and message. */
  readonly #leasedBy = new Map<string, string>();
  #wanted: Wanted | undefined;

  constructor(world: World, webhooks: WebhookStage) {
    this.#world = world;
    this.#webhooks = webhooks;
    world.proxy.steer({
      command: (passing) => this.#command(passing),
      reply: (passing, bytes) => this.#reply(passing, bytes),
    });
    webhooks.receiver.steer({
      arrived: (message) => this.#arrived(message),
      answered: (message) => {
        if (message.status < 300) this.#reach("answered 2xx, no SETTLE", this.#senderOf(message));
      },
    });
  }

  /** Strikes once, and waits until what was struck is back. */
  async strike(strike: Strike): Promise<void> {
    if (!isStep(strike)) return disturb(this.#world, this.#webhooks.receiver, strike);
    const wanted: Wanted = { step: strike, slot: -1 };
    this.#wanted = wanted;
    const isReached = await within(REACH_MS, () => wanted.slot >= 0);
    if (!isReached) this.#world.note("not reached", strike);
    else if (strike === STANDING) await this.#outlast(wanted);
    else await this.#world.startIn(wanted.slot);
    this.#wanted = undefined;
  }

  /** Kills the gateway, if it is this step that is waited for. */
  #reach(step: Step, gateway: string | undefined): boolean {
    const slot = this.#slotOf(gateway);
    if (this.#wanted?.step !== step || this.#wanted.slot >= 0 || slot < 0) return false;
    this.#wanted.slot = slot;
    this.#world.kill(slot, step);
    return true;
  }

  #slotOf(gateway: string | undefined): number {
    return this.#world.gateways.findIndex((one) => one?.name === gateway);
  }

  #senderOf(message: ReceivedMessage): string | undefined {
    return this.#leasedBy.get(nameOf(message));
  }

  #command(passing: Passing): Action {
    const { script, gateway } = passing;
    const isReached =
      (script === "observe" && endsTask(passing) && this.#reach("OBSERVE at the store, not run", gateway)) ||
      (script === "settle-delivery" &&
        settles(passing) &&
        this.#reach("SETTLE at the store, not run", gateway));
    return isReached ? "freeze" : undefined;
  }

  #reply(passing: Passing, bytes: Buffer): Action {
    const { script, gateway } = passing;
    if (script === "settle-delivery") this.#noteSettlings(passing);
    const hasLeased = script === "lease-deliveries" && this.#noteLeases(passing, bytes);
    const isReached =
      (script === "observe" &&
        endsTask(passing) &&
        this.#reach("OBSERVE run, its reply withheld", gateway)) ||
      (hasLeased && this.#reach("LEASE run, its reply withheld", gateway)) ||
      (script === "settle-delivery" &&
        settles(passing) &&
        this.#reach("SETTLE run, its reply withheld", gateway));
    return isReached ? "freeze" : undefined;
  }

  #noteSettlings({ items }: Passing): void {
    for (const { args, outcome, atMs } of items) {
      const [endpointId = "", webhookId = "", , lease, result = ""] = args;
      const own = { endpointId: idOf(endpointId), webhookId, lease: Number(lease), atMs };
      this.#webhooks.settlings.push({ ...own, result, outcome });
    }
  }

  /** @returns whether there are some */
  #noteLeases({ gateway }: Passing, bytes: Buffer): boolean {
    const leased = [...bytes.toString("latin1").matchAll(LEASED)];
    for (const [, endpointId = "", webhookId = "", lease] of leased) {
      const one = { endpointId: idOf(endpointId), webhookId, lease: Number(lease), atMs: Date.now() };
      this.#webhooks.leases.push(one);
      this.#leasedBy.set(nameOf(one), gateway);
    }
    return leased.length > 0;
  }

  #arrived(message: ReceivedMessage): "hold" | Promise<void> | undefined {
    const wanted = this.#wanted;
    if (wanted?.step !== STANDING) {
      const isReached = this.#reach("a message is being sent", this.#senderOf(message));
      return isReached ? "hold" : undefined;
    }
    if (wanted.slot < 0) return this.#stand(wanted, message);
    if (wanted.name !== nameOf(message) || wanted.isSentAgain) return undefined;
    wanted.isSentAgain = true;
    return pause(HELD_BESIDE_MS);
  }

  #stand(wanted: Wanted, message: ReceivedMessage): "hold" | undefined {
    const slot = this.#slotOf(this.#senderOf(message));
    // Where much waits, it is not sent again soon.
    if (slot < 0 || this.#webhooks.mannerOf(message.endpointId) !== "answers") return undefined;
    process.kill(this.#world.gateways[slot]!.pid, "SIGSTOP");
    Object.assign(wanted, { slot, name: nameOf(message) });
    this.#world.note(STANDING);
    return "hold";
  }

  /** No client asks a gateway that stands still, until another one sends its message. */
  async #outlast(wanted: Wanted): Promise<void> {
    const { gateways, note } = this.#world;
    const gateway = gateways[wanted.slot]!;
    gateways[wanted.slot] = undefined;
    const isSentAgain = await within(REACH_MS, () => wanted.isSentAgain === true);
    process.kill(gateway.pid, "SIGCONT");
    gateways[wanted.slot] = gateway;
    note(isSentAgain ? `end of ${STANDING}` : "not reached", STANDING);
  }
}

const nameOf = ({ endpointId, webhookId }: { endpointId: string; webhookId: string }): string =>
  `${endpointId} ${webhookId}`;

async function disturb(world: World, receiver: Receiver, strike: Exclude<Strike, Step>): Promise<void> {
  const { server, proxy, random, note } = world;
  const forMs = random.int(200, 2000);
  note(strike);
  switch (strike) {
    case "store killed":
      await server.restart(forMs);
      break;
    case "links cut":
      proxy.pointTo(server.port);
      break;
    case "store frozen":
      process.kill(server.pid(), "SIGSTOP");
      await pause(forMs);
      process.kill(server.pid(), "SIGCONT");
      break;
    case "receiver down":
      receiver.down(true);
      await pause(forMs);
      receiver.down(false);
      break;
  }
  note(`end of ${strike}`);
}

const isStep = (strike: Strike): strike is Step => (STEPS as readonly string[]).includes(strike);
