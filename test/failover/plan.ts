import { createRandom, seedFor } from "../fault/random.ts";
import { PARTITIONS } from "./slots.ts";
import { type Fault, losesConfirmed } from "./strikes.ts";

/** The plan of one round, before anything runs. */
export interface PlannedRound {
  fault: Fault;
  /** Whose primary it befalls. */
  partition: number;
  /** Slots of the gateways that are killed at the same moment. */
  killed: readonly number[];
  /** Load before the fault, ms. */
  beforeMs: number;
  /** Load once all are served again, ms. */
  afterMs: number;
  /** How long the fault lasts where nobody takes over, ms. */
  awayMs: number;
}

export const GATEWAYS = 2;
/** Load before a fault and after it, ms. */
export interface Pace {
  beforeMs: readonly [min: number, max: number];
  afterMs: number;
}

export const USUAL_PACE: Pace = { beforeMs: [400, 1200], afterMs: 500 };
const AWAY_MS = [300, 2500] as const;
const ONE_GATEWAY = 0.2;
const ALL_GATEWAYS = 0.15;

/** Every fault comes once before any comes again. */
export function planRounds(
  seed: number,
  faults: readonly Fault[],
  count: number,
  { beforeMs, afterMs }: Pace = USUAL_PACE,
): PlannedRound[] {
  const order = createRandom(seed);
  let deck: Fault[] = [];
  return Array.from({ length: count }, (_, at) => {
    if (deck.length === 0) deck = order.shuffle(faults);
    const fault = deck.pop()!;
    // Of its own: a round stays the same when another one before it draws more.
    const random = createRandom(seedFor(seed, `round ${at}`));
    const share = random.real();
    const one = random.int(0, GATEWAYS - 1);
    const all = Array.from({ length: GATEWAYS }, (_, slot) => slot);
    const killed = share < ALL_GATEWAYS ? all : share < ALL_GATEWAYS + ONE_GATEWAY ? [one] : [];
    return {
      fault,
      partition: random.int(0, PARTITIONS - 1),
      killed: losesConfirmed(fault) ? [] : killed,
      beforeMs: random.int(...beforeMs),
      afterMs,
      awayMs: random.int(...AWAY_MS),
    };
  });
}
