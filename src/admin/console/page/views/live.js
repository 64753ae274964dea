import { rate, shortCount, took, wholeCount } from "../format.js";

/** Whose latency is shown. */
export const KINDS = { all: "all requests", generations: "generations", polls: "task polls" };

const perSecond = {
  note: "Averaged over 10 s, this gateway.",
  format: rate,
  tick: (/** @type {number} */ value) => String(Number(value.toPrecision(3))),
};
export const RATES = {
  ...perSecond,
  title: "Requests per second",
  lines: [
    { name: "ok", label: "answered", color: "--blue", fill: true },
    { name: "refused", label: "refused (4xx)", color: "--orange", dash: [8, 3] },
    { name: "failed", label: "failed (5xx)", color: "--red", dash: [3, 3] },
  ],
};
export const REFUSALS = {
  ...perSecond,
  title: "Refusals per second, by limit",
  lines: [
    { name: "rate_limited", label: "per minute", color: "--orange" },
    { name: "concurrency_limited", label: "slots", color: "--violet", dash: [8, 3] },
    { name: "daily_limited", label: "per day", color: "--teal", dash: [3, 3] },
    { name: "insufficient_credits", label: "credits", color: "--red", dash: [10, 3, 2, 3] },
    { name: "other_refusals", label: "other", color: "--soft", dash: [1, 3] },
  ],
};
export const SLOTS = {
  title: "Slots taken",
  note: "Holds and unfinished tasks over all gateways, read every 10 s; in flight in this one.",
  format: wholeCount,
  tick: shortCount,
  whole: true,
  lines: [
    { name: "slots", label: "slots, all gateways", color: "--violet", fill: true },
    { name: "in_flight", label: "requests in flight here", color: "--blue", dash: [8, 3] },
  ],
};
/** @param {keyof typeof KINDS} kind */
const latencyOf = (kind) => ({
  title: `Latency of ${KINDS[kind]}`,
  note: "Over 30 s, this gateway; logarithmic.",
  format: took,
  logarithmic: true,
  lines: [
    { name: `${kind}_p50`, label: "p50", color: "--blue" },
    { name: `${kind}_p99`, label: "p99", color: "--red", dash: [8, 3] },
    { name: `${kind}_upstream_p99`, label: "upstream's p99", color: "--teal", dash: [3, 3] },
  ],
});

export const LATENCY = {
  all: latencyOf("all"),
  generations: latencyOf("generations"),
  polls: latencyOf("polls"),
};
