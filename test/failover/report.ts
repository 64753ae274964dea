import { commit, writePart } from "../fault/report.ts";
import type { Fault, Topology } from "./driver.ts";
import { type Outcome, type Round, slowestMs } from "./rounds.ts";

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
  const { median, worst } = slowestMs(rounds);
  const faults = [...Map.groupBy(rounds, ({ fault }) => fault)].map(faultRow);
  const criteria = verdict.criteria.map(
    ({ name, met, figure }) => `| ${name} | ${met ? "met" : "**not met**"} | ${figure} |`,
  );
  const since = topology === "server" ? "after the end of the fault" : "after the fault";
  const text = `Written by \`npm run test:failover -- --topology ${topology}\`: ${WHAT[topology]}. Two gateways, load over all 64 partitions, an
operator at the command line. ${rounds.length} rounds in ${seconds} s, seed ${seed}, commit ${commit()}.

The last of the partitions was served again ${median} ms ${since} (median of the rounds), ${worst} ms at worst.

| fault | rounds | with a gateway | violations after the round |
| --- | --- | --- | --- |
${faults.join("\n")}

| criterion at the end | | figures |
| --- | --- | --- |
${criteria.join("\n")}
`;
  await writePart(`failover: ${topology}`, text);
}

function faultRow([fault, rounds]: [Fault, Round[]]): string {
  const withGateway = rounds.filter((round) => round.withGateway).length;
  const violations = rounds.reduce((sum, round) => sum + round.violations.length, 0);
  return `| ${fault} | ${rounds.length} | ${withGateway} | ${violations} |`;
}
