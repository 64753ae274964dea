import type { Criterion } from "../fault/checker.ts";
import { commit, writePart } from "../fault/report.ts";
import type { Topology } from "./driver.ts";
import { type Outcome, type Round, slowestMs } from "./rounds.ts";
import { FAULTS, type Fault } from "./strikes.ts";

const WHAT: Record<Topology, string> = {
  server: "one primary with one replica and nobody who fails over: the primary comes back by itself",
  trio: "one primary with two replicas and three Sentinels",
  cluster: "a Redis Cluster of three primaries with one replica each",
};

/** Writes the section of a topology in the page of figures, and leaves the rest of the page. */
export async function writeSection(
  run: Outcome & { topology: Topology; seed: number; seconds: number },
): Promise<void> {
  const { topology, seed, seconds, rounds, verdict } = run;
  const { median, worst } = slowestMs(rounds.filter(({ lostAllGateways }) => !lostAllGateways));
  const faults = [...Map.groupBy(rounds, ({ fault }) => fault)].map(faultRow);
  const criteria = verdict.criteria.map(
    ({ name, met, figure }) => `| ${name} | ${met ? "met" : "**not met**"} | ${figure} |`,
  );
  const since = topology === "server" ? "after the end of the fault" : "after the fault";
  const text = `Written by \`npm run test:failover -- --topology ${topology}\`: ${WHAT[topology]}. Two gateways, load over all 64 partitions, an
operator at the command line. ${rounds.length} rounds in ${seconds} s, seed ${seed}, commit ${commit()}.

The last of the partitions was served again ${median} ms ${since} (median of the rounds in which a
gateway was left), ${worst} ms at worst.

| fault | rounds | with one gateway | with both | last partition served, median | worst | violations after the round |
| --- | --- | --- | --- | --- | --- | --- |
${faults.join("\n")}

| criterion at the end | | figures |
| --- | --- | --- |
${criteria.join("\n")}
`;
  await writePart(`failover: ${topology}`, text);
}

/** Writes the section of a topology's failovers beside killed gateways and bad receivers. */
export async function writeWebhooks(
  run: Outcome & { topology: Topology; seed: number; seconds: number },
): Promise<void> {
  const { topology, seed, seconds, rounds, verdict } = run;
  const violations = rounds.reduce((sum, round) => sum + round.violations.length, 0);
  const criteria = verdict.criteria.map(
    ({ name, met, figure }) => `| ${name} | ${met ? "met" : "**not met**"} | ${figure} |`,
  );
  const text = `Written by \`npm run test:failover -- --webhooks --topology ${topology}\`: ${WHAT[topology]}. Rounds in which another node takes
over, under load, while one random gateway after the other is killed, and tasks' ends are told to endpoints and to requests' own addresses
whose receivers answer in all ways. The schedule of retries is short. ${rounds.length} rounds in ${seconds} s, ${violations} violations after
them, seed ${seed}, commit ${commit()}.

| criterion at the end | | figures |
| --- | --- | --- |
${criteria.join("\n")}
`;
  await writePart(`failover: webhooks ${topology}`, text);
}

/** Writes the section of the seeded bugs. */
export async function writeControls(seed: number, criteria: readonly Criterion[]): Promise<void> {
  const rows = criteria.map(
    ({ name, met, figure }) => `| ${name} | ${met ? "met" : "**not met**"} | ${figure} |`,
  );
  const text = `Written by \`npm run test:failover -- --controls\`: rounds on sources with a seeded bug each, which the checker must catch. Seed ${seed},
commit ${commit()}.

| seeded bug | | figures |
| --- | --- | --- |
${rows.join("\n")}
`;
  await writePart("failover: controls", text);
}

function faultRow([fault, rounds]: [Fault, Round[]]): string {
  const withGateways = (count: number): number =>
    rounds.filter(({ gatewaysKilled }) => gatewaysKilled === count).length;
  const violations = rounds.reduce((sum, round) => sum + round.violations.length, 0);
  const { median, worst } = slowestMs(rounds);
  const cells = [
    FAULTS[fault],
    rounds.length,
    withGateways(1),
    withGateways(2),
    `${median} ms`,
    `${worst} ms`,
  ];
  return `| ${[...cells, violations].join(" | ")} |`;
}
