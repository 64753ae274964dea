import type { Rule } from "../fault/checker.ts";
import type { Finding } from "../fault/criteria-money.ts";
import { endsToDeliver } from "../fault/criteria-webhooks.ts";
import type { FaultEvent } from "../fault/history.ts";
import type { Facts } from "./checker.ts";

/** The least that a run of the campaign of webhooks must have had. */
const ENDS_MIN = 3000;
const KILLS_MIN = 50;
const FAILOVERS_MIN = 10;
/** Kills while a primary was away. */
const KILLS_MEANWHILE_MIN = 5;
/** Of each answer. */
const ANSWERS_MIN = 10;
const ANSWERS = ["200", "500", "410", "429", "302", "hang", "reset", "drip", "close early"];

function atLeast(min: number, count: number, figure = ""): Finding {
  const violations = count < min ? [`${count}, which is less than ${min}`] : [];
  return { figure: `${count}${figure}`, violations };
}

const enoughEnds = (facts: Facts): Finding => atLeast(ENDS_MIN, endsToDeliver(facts).length);

function enoughKills({ history, rounds }: Facts): Finding {
  const kills = history.faults.filter(({ kind }) => kind === "kill");
  const isMeanwhile = ({ atMs }: FaultEvent): boolean =>
    rounds.some(
      ({ strikeMs, servedMs }) => atMs >= strikeMs && atMs <= strikeMs + (servedMs.at(-1) ?? Infinity),
    );
  const meanwhile = kills.filter(isMeanwhile).length;
  const { figure, violations } = atLeast(KILLS_MIN, kills.length, `, ${meanwhile} of them during a failover`);
  if (meanwhile < KILLS_MEANWHILE_MIN) violations.push(`${meanwhile} during a failover`);
  return { figure, violations };
}

const enoughFailovers = ({ failovers }: Facts): Finding => atLeast(FAILOVERS_MIN, failovers);

/** Receivers have answered in each way, so that none was left out by chance. */
function allAnswers({ history }: Facts): Finding {
  const { messages = [] } = history.webhooks ?? {};
  const counts = new Map(ANSWERS.map((name) => [name, 0]));
  for (const { answer = "" } of messages) counts.set(answer, (counts.get(answer) ?? 0) + 1);
  const named = [...counts].filter(([name]) => name !== "");
  const rare = named.filter(([name, count]) => ANSWERS.includes(name) && count < ANSWERS_MIN);
  return {
    figure: named.map(([name, count]) => `${count} × ${name}`).join(", "),
    violations: rare.map(([name, count]) => `${count} × ${name}, which is less than ${ANSWERS_MIN}`),
  };
}

/** Checks that all of it happened in one run: a run that did too little proves nothing. */
export const TOGETHER: readonly Rule<Facts>[] = [
  [`at least ${ENDS_MIN.toLocaleString("en")} ends of tasks to be told`, enoughEnds],
  [`at least ${KILLS_MIN} gateways killed`, enoughKills],
  [`at least ${FAILOVERS_MIN} failovers`, enoughFailovers],
  ["receivers answered in all ways", allAnswers],
];
