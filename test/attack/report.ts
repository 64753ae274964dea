import type { Caught } from "./controls.ts";
import {
  type Criterion,
  isMet,
  judge,
  type Measured,
  p99Of,
  quantile,
  REACH,
  refusalsOf,
} from "./criteria.ts";

const MIB = 1024 * 1024;

/** Under which circumstances the figures came about. */
export interface Circumstances {
  seed: number;
  commit: string;
  node: string;
  redis: string;
  machine: string;
  /** Of the last minute, when the campaign began and when it ended. */
  load: readonly [number, number];
  minutes: number;
}

/** The page of a campaign, as Markdown. */
export function page(
  all: readonly Measured[],
  caught: readonly Caught[],
  circumstances: Circumstances,
): string {
  const { seed, commit, node, redis, machine, load, minutes } = circumstances;
  const unmet = [...all.filter((measured) => !isMet(measured)), ...caught.filter(({ met }) => !met)].map(
    ({ name }) => `\`${name}\``,
  );
  const verdict = unmet.length === 0 ? "All criteria are met." : `**Not met in: ${unmet.join(", ")}.**`;
  const baseline = all.flatMap((measured) => measured.baseline);
  return `# Figures of the attack campaign

Written by \`npm run test:attack\`; do not edit. ${verdict} \`npm run test:attack -- --seed ${seed}\` sends the same again;
\`--attack NAME\` runs one attack and leaves this page as it is, as do \`--controls\` and \`--control NAME\`, which run seeded bugs.
The attacks are in \`test/attack/attacks\`, the seeded bugs in \`test/attack/controls.ts\`.

Each attack meets a gateway process of its own, with the default settings unless it says otherwise, a Redis of its own and
the sandbox generator. The attacker is a process of its own at another address of the loopback, and gives way to everybody
else when processors are short. An honest customer, a third process, sends 25 requests a second all the while: generations,
polls, credits and uploads, each fourth on a new connection. Its requests count from the moment when they were due.

To be reached: honest p99 at most ${REACH.honestP99Ms} ms (where the machine is busy, that of the same run alone, but ${REACH.busyP99Ms} ms at most) and no honest request refused, resident memory at most ${REACH.residentMiB} MiB above
idle, everything back within ${REACH.recoverySeconds} s, no free video, no charge without a video. Everything is back when the gateway is ready
and holds no request and no connection of the attack, and a second of honest requests has been answered in time.

All processes share this machine, so part of each latency is its own: "alone" is the honest p99 before the attack, in the
same run. Over all runs ${baseline.length} requests without an attack had a p99 of ${ms(p99Of(baseline))}, the slowest ${ms(
    quantile(
      baseline.map(({ tookMs }) => tookMs),
      1,
    ),
  )}.

| | |
| --- | --- |
| seed | ${seed} |
| commit | ${commit} |
| machine | ${machine} |
| load average | ${load[0].toFixed(1)} at the beginning, ${load[1].toFixed(1)} at the end |
| Node, Redis | ${node}, ${redis} |
| took | ${minutes} min |

| attack | honest p99 alone | during | refused | memory before, peak, after (MiB) | back after | free videos | charges without a video | |
| --- | --- | --- | --- | --- | --- | --- | --- | --- |
${all.map(row).join("\n")}

## Seeded bugs

Each is one change of a copy of the sources, and an attack in half its size must find it.

| bug | attack | | figure |
| --- | --- | --- | --- |
${caught.map(caughtRow).join("\n")}

${all.map(section).join("\n")}`;
}

const ms = (value: number): string => `${Math.round(value)} ms`;
const mib = (bytes: number): string => String(Math.round(bytes / MIB));

function row(measured: Measured): string {
  const { name, baseline, during, residentBytes, recoverySeconds, money } = measured;
  const cells = [
    `[${name}](#${name})`,
    ms(p99Of(baseline)),
    ms(p99Of(during)),
    `${refusalsOf(during).length} of ${during.length}`,
    `${mib(residentBytes.before)}, ${mib(residentBytes.peak)}, ${mib(residentBytes.after)}`,
    recoverySeconds === undefined ? "not" : `${recoverySeconds.toFixed(1)} s`,
    money.freeVideos.length,
    money.chargesWithoutVideo.length,
    isMet(measured) ? "met" : "**not met**",
  ];
  return `| ${cells.join(" | ")} |`;
}

const caughtRow = ({ name, attack, met, figure }: Caught): string =>
  `| ${name} | [${attack}](#${attack}) | ${met ? "caught" : "**not caught**"} | ${figure} |`;

function section(measured: Measured): string {
  const { name, title, sent, attackSeconds, during } = measured;
  const criteria = judge(measured).map(
    ({ name: criterion, met, figure }: Criterion) =>
      `| ${criterion} | ${met ? "met" : "**not met**"} | ${figure} |`,
  );
  const late = quantile(
    during.map(({ lateMs }) => lateMs),
    0.99,
  );
  return `## ${name}

${title[0]?.toUpperCase()}${title.slice(1)}.

Sent in ${attackSeconds.toFixed(1)} s: ${number(sent.requests)} requests, ${number(sent.bytes)} bytes, ${number(sent.connections)} connections. Answered: ${answers(sent.answers)}.
The honest customer's own process was up to ${ms(late)} late (p99), which is not in the figures.

| criterion | | figures |
| --- | --- | --- |
${criteria.join("\n")}
`;
}

const number = (value: number): string => value.toLocaleString("en-US");

function answers(counts: Record<string, number>): string {
  const listed = Object.entries(counts)
    .sort(([a], [b]) => Number(a) - Number(b))
    .map(([status, count]) => `${number(count)} × ${status}`);
  return listed.length === 0 ? "nothing" : listed.join(", ");
}

/** The page with the rows and sections of some attacks that ran alone, each with its own seed and commit, and rows of seeded bugs. */
export function withRecorded(
  text: string,
  all: readonly Measured[],
  caught: readonly Caught[],
  { seed, commit }: Pick<Circumstances, "seed" | "commit">,
): string {
  const [head = "", ...sections] = text.split("\n## ");
  const rows = head.trimEnd().split("\n");
  for (const measured of all) {
    const title = `${measured.title}. Run alone: seed ${seed}, commit ${commit}`;
    put(rows, `| [${measured.name}](`, row(measured));
    put(sections, `${measured.name}\n`, section({ ...measured, title }).slice("## ".length));
  }
  const bugs = sections.findIndex((each) => each.startsWith("Seeded bugs\n"));
  const bugRows = (sections[bugs] ?? "").trimEnd().split("\n");
  for (const one of caught) put(bugRows, `| ${one.name} |`, caughtRow(one));
  if (bugs !== -1) sections[bugs] = bugRows.join("\n");
  return [rows.join("\n"), ...sections.map((one) => one.trimEnd())].join("\n\n## ").concat("\n");
}

/** Puts it in the place of the one that begins so, or at the end. */
function put(all: string[], beginning: string, one: string): void {
  const at = all.findIndex((each) => each.startsWith(beginning));
  all.splice(at === -1 ? all.length : at, 1, one);
}

/** The unmet criteria, a line each, for the terminal. */
export function unmetLines(all: readonly Measured[]): string[] {
  return all.flatMap((measured) =>
    judge(measured)
      .filter(({ met }) => !met)
      .map(({ name, figure }) => `${measured.name}: not met: ${name}: ${figure}`),
  );
}
