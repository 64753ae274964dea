import { mkdtemp } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { parseArgs } from "node:util";
import { recordSections, writeReport } from "./report.ts";
import { type Outcome, PARTS, runPart } from "./run.ts";
import { copySources } from "./tree.ts";
import { ROOT, stopWorlds } from "./world.ts";

/**
 * The full campaign, or some scenarios of it: `--scenario` may be given several times. `--control` takes only the seeded bugs whose
 * name has that text. `--record` writes the sections of these scenarios into the page of figures.
 */
async function main(): Promise<void> {
  const { values } = parseArgs({
    options: {
      scenario: { type: "string", multiple: true, default: [] },
      control: { type: "string", default: "" },
      seed: { type: "string" },
      short: { type: "boolean", default: false },
      record: { type: "boolean", default: false },
      "at-a-time": { type: "string", default: "1" },
    },
  });
  const seed = Number(values.seed ?? Math.floor(Math.random() * 2 ** 31));
  const isWhole = values.scenario.length === 0;
  const chosen = PARTS.filter(({ name, fullOnly }) =>
    isWhole ? !(values.short && fullOnly) : values.scenario.includes(name),
  );
  if (chosen.length < values.scenario.length || !Number.isSafeInteger(seed)) {
    process.stderr.write(
      `--scenario is one of ${PARTS.map(({ name }) => name).join(", ")}; --seed a number\n`,
    );
    process.exit(1);
  }
  const folder = await mkdtemp(join(tmpdir(), "tollgate-fault-"));
  console.log(`seed ${seed}: the same schedule comes with --seed ${seed}; histories under ${folder}`);
  const root = copySources(ROOT, join(folder, "tree"));
  const outcomes: Outcome[] = new Array(chosen.length);
  let next = 0;
  // Scenarios wait for due times most of their time: some may run beside each other on a machine that has nothing else to do.
  const lane = async (): Promise<void> => {
    while (next < chosen.length) {
      const at = next++;
      outcomes[at] = await runPart(chosen[at]!, {
        seed,
        folder,
        root,
        short: values.short,
        control: values.control,
        log: console.log,
      });
    }
  };
  await Promise.all(Array.from({ length: Number(values["at-a-time"]) }, lane));
  if (!values.short && isWhole) await writeReport(seed, outcomes);
  else if (values.record) await recordSections(seed, outcomes);
  const failed = outcomes.filter(({ met }) => !met).map(({ name }) => name);
  console.log(failed.length === 0 ? "all criteria met" : `criteria unmet in: ${failed.join(", ")}`);
  process.exit(failed.length === 0 ? 0 : 1);
}

for (const signal of ["SIGINT", "SIGTERM"] as const) {
  process.once(signal, () => void stopWorlds().then(() => process.exit(130)));
}
main().catch(async (error: unknown) => {
  console.error(error);
  await stopWorlds();
  process.exit(1);
});
