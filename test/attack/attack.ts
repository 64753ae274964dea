/** Settings by section, as in the config file. */
export type Sections = Record<string, Record<string, unknown>>;

/** The attacker's knowledge, and its share of the attack. Its process reads it from a file. */
export interface Target {
  attack: string;
  url: string;
  adminUrl: string;
  /** Of the gateway's Redis: for what only Redis can say. */
  redisUrl: string;
  /** The gateway's standard output. */
  logFile: string;
  /** A good key without credits. */
  poorKey: string;
  /** A good key with credits. */
  paidKey: string;
  /** Good keys with credits, all of another account, which is the large one. */
  paidKeys: readonly string[];
  /** A good key that this gateway has never seen. */
  unseenKey: string;
  /** Whatever is random follows from it. */
  seed: number;
  /** Share of the full amounts, above 0 and at most 1. */
  scale: number;
  /** The attack ends by itself after so long, ms. */
  durationMs: number;
}

/** Something that must hold beside the criteria that are common to all attacks. */
export interface Check {
  what: string;
  met: boolean;
  figure: string;
}

/** Bytes that an attacker has sent and received. */
export interface Sent {
  /** Requests that were begun. */
  requests: number;
  bytes: number;
  connections: number;
  /** Answers by HTTP status. */
  answers: Record<string, number>;
  checks: Check[];
}

/** One answer of the upstream, before it goes to the gateway. */
export interface TwistedAnswer {
  method: string;
  /** Path without a query. */
  path: string;
  /** The gateway's answer, as text. */
  body: string;
  /** The generator's answer. */
  answer: string;
}

/**
 * A comma and a member as JSON, added to the answer's object; undefined: nothing. It is built once, since making it takes time
 * that every other call of the upstream would wait for.
 */
export type Twist = (answer: TwistedAnswer) => Buffer | undefined;

/** One attack: how the gateway is started, and what is sent to it. */
export interface Attack {
  name: string;
  /** One sentence: what is sent, in full size. */
  title: string;
  /** At most this long, ms; what could not be sent by then is left out. */
  durationMs: number;
  /** Preparation before it takes at most this long, ms, on a machine that is busy with other things. */
  preparesMsMax?: number;
  /** Settings that differ from the defaults. */
  config?: Sections;
  env?: Record<string, string>;
  /** The account of `paidKeys` has so many keys besides, each with an open task. */
  accountKeys?: number;
  /** Limit of open files of the gateway's process. */
  openFiles?: number;
  /** Changes answers of the upstream, in a process of its own. */
  twist?: () => Twist;
  /** Runs in the attacker's own process, from its own address. */
  send(target: Target): Promise<Sent>;
}

/** Stands in every prompt of an attacker, so that the upstream knows its requests. */
export const MARK = "attack-mark";

/** The account of `paidKeys` in attacks with `accountKeys`. */
export const LARGE_ACCOUNT = "acc_large";

/** Another address than the honest client's: attackers and customers seldom share one. */
export const ATTACKER_ADDRESS = "127.0.0.2";
/** The address of the honest client. */
export const HONEST_ADDRESS = "127.0.0.1";

export const TEXT_TO_VIDEO = "/api/v1/gen2/text-to-video";
