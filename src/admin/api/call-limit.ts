import { FairGate } from "../../domain/fair-gate.ts";
import { Problem } from "./problems.ts";

/** Calls that are worked on at a time, and those that wait: customers' requests share the process. */
const RUNNING_MAX = 8;
const WAITING_MAX = 32;

/** Bounds the work under way. Tokens take turns. @throws Problem `overloaded` beyond the bound */
export function createCallLimit() {
  const gate = new FairGate({ inFlightMax: RUNNING_MAX, waitingMax: WAITING_MAX });
  return {
    /** @param owner whose call it is: those of one token are one owner's */
    run: <T>(owner: string, work: () => Promise<T>): Promise<T> => gate.run(owner, work, overloaded),
  };
}

const overloaded = (): Problem =>
  new Problem("overloaded", "too many calls at a time", { headers: { "Retry-After": "1" } });
