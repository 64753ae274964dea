import { spawn } from "node:child_process";
import { cpSync, existsSync, mkdirSync, readFileSync, rmSync, symlinkSync } from "node:fs";
import { join } from "node:path";
import type { Criterion, Verdict } from "../checker.ts";
import { copySources, type Patch } from "../tree.ts";
import { ROOT, type RunOptions } from "../world.ts";

/** A seeded bug that no history of a scenario shows, and the test that must fail on it. */
interface SourceMutant extends Patch {
  name: string;
  /** Vitest's project, and the file below its folder. */
  project: "unit" | "lua" | "gateway" | "archive" | "operators";
  testFile: string;
  /** Part of the test's name. */
  test: string;
}

const TASK_DATA = {
  file: "src/upstream/answer.ts",
  project: "unit",
  testFile: "upstream/outcomes.test.ts",
} as const;
const VISIBLE = {
  file: "src/domain/operator-texts.ts",
  project: "unit",
  testFile: "sandbox/readable-lines.test.ts",
} as const;
const JOURNAL_FOLDER = {
  file: "src/durability/process-files.ts",
  project: "unit",
  testFile: "durability/outbox/journal-owners.test.ts",
  test: "pipes, folders, links and huge files in the folder are not opened",
} as const;
const FALLBACK = {
  project: "unit",
  testFile: "gateway/unmetered-fallback.test.ts",
} as const;
const ALERTS = {
  file: "config/prometheus/alerts.yaml",
  project: "operators",
  testFile: "prometheus.test.ts",
  test: "promtool finds no fault in the rules",
} as const;

const PUBLIC_ADDRESS = {
  file: "src/webhooks/public-address.ts",
  project: "unit",
  testFile: "webhooks/address-guard.test.ts",
} as const;
const GUARDED_AGENT = {
  file: "src/webhooks/guarded-agent.ts",
  project: "unit",
  testFile: "webhooks/guarded-agent.test.ts",
} as const;
const SENDER = {
  file: "src/webhooks/sender.ts",
  project: "unit",
  testFile: "webhooks/sender.test.ts",
} as const;

export const SOURCE_MUTANTS: readonly SourceMutant[] = [
  {
    ...PUBLIC_ADDRESS,
    name: "webhooks go to the metadata addresses of a cloud",
    from: " || METADATA.has(parsed.toString())",
    to: "",
    test: "no setting opens the metadata addresses of a cloud",
  },
  {
    ...PUBLIC_ADDRESS,
    name: "webhooks go to IPv4 addresses inside IPv6 ones that no range has",
    from: "address.match(GLOBAL_UNICAST) && ",
    to: "",
    test: "no form of an inner address or name passes",
  },
  {
    ...GUARDED_AGENT,
    name: "of the addresses of a webhook's name only the first is judged",
    from: "for (const address of addresses) check(address);",
    to: "check(addresses[0]);",
    test: "is not connected to",
  },
  {
    ...GUARDED_AGENT,
    name: "the peer of a webhook is not judged",
    from: "check(socket.remoteAddress);",
    to: "",
    test: "a connection that ends up at an inner peer",
  },
  {
    ...GUARDED_AGENT,
    name: "a webhook's name is resolved again to connect",
    from: "lookup: pinned(addresses),",
    to: "",
    test: "a name in an allowed network",
  },
  {
    ...SENDER,
    name: "a webhook's answer is read to its end",
    from: "if (this.#bytes >= ANSWER_BYTES_MAX) this",
    to: "if (this.#bytes >= 1e9) this",
    test: "of an endless answer 4 KiB are read",
  },
  {
    ...SENDER,
    name: "connections for webhooks outlive the policy that allowed them",
    from: "if (current?.settings === inForce) return current.agent;",
    to: "if (current) return current.agent;",
    testFile: "webhooks/guarded-agent.test.ts",
    test: "connections that a policy has allowed",
  },
  {
    name: "after a rotation only the new secret signs",
    file: "src/webhooks/delivery-message.ts",
    from: "signers.map((signer)",
    to: "signers.slice(0, 1).map((signer)",
    project: "unit",
    testFile: "webhooks/signature.test.ts",
    test: "accepts either secret after a rotation",
  },
  {
    ...TASK_DATA,
    name: "progress such as 45% is passed on as it came",
    from: 'if (data.progress !== undefined) replace(data, "progress", percent(data.progress));',
    to: "",
    test: "progress",
  },
  {
    ...TASK_DATA,
    name: "a time without a zone is taken for UTC",
    from: "(?:[Zz]|[+-]\\d\\d:?\\d\\d)$/",
    to: "(?:[Zz]|[+-]\\d\\d:?\\d\\d)?$/",
    test: "completed_at",
  },
  {
    ...TASK_DATA,
    name: "seconds are read as milliseconds",
    from: "number < 1e11 ? number * 1000 : number",
    to: "number",
    test: "completed_at",
  },
  {
    name: "a video is handed out while its charge waits",
    file: "src/gateway/generate.ts",
    from: "success(isCharged ? data : withoutVideo(data)",
    to: "success(data",
    project: "gateway",
    testFile: "store-lost-replies.test.ts",
    test: "the video of a task that is completed at once comes after its charge",
  },
  {
    ...FALLBACK,
    file: "src/gateway/unmetered.ts",
    name: "an INSPECT that is answered after a revoke makes the key good again",
    from: "if (valid === undefined || isInvalid || !isAllowed(context)) return false;",
    to: "if (valid === undefined || !isAllowed(context)) return false;",
    test: "an INSPECT whose reply comes after the key was called invalid",
  },
  {
    ...FALLBACK,
    file: "src/gateway/key-memory.ts",
    name: "the latest reply counts, whenever its script ran",
    from: "if (usage.valid === undefined || usage.valid.atMs <= atMs)",
    to: "if (true)",
    test: "an earlier reply handled late brings back no earlier terms",
  },
  {
    name: "a refund is another one when another token repeats it",
    file: "src/operations/credits/refunds.ts",
    from: "standsFor: `refund $",
    to: "standsFor: actor.by + `refund $",
    project: "archive",
    testFile: "whose-archive.test.ts",
    test: "a refund whose answer was lost is repeated after the retention, with another token",
  },
  {
    ...VISIBLE,
    name: "C1 control characters reach a terminal",
    from: "[\\p{Cc}\\u061c",
    to: "[\\u0000-\\u001f\\u061c",
    test: "is shown escaped",
  },
  {
    ...VISIBLE,
    name: "characters that turn text reach a terminal",
    from: "\\u2028-\\u202e\\u2060-\\u2069",
    to: "\\u2028\\u2029",
    test: "is shown escaped",
  },
  {
    ...JOURNAL_FOLDER,
    name: "a pipe in the journal folder is read",
    from: "if (!stats.isFile())",
    to: "if (false)",
  },
  {
    ...JOURNAL_FOLDER,
    name: "a link in the journal folder is followed",
    from: "constants.O_RDONLY | constants.O_NOFOLLOW",
    to: "constants.O_RDONLY",
  },
  {
    name: "each reading of a long ledger keeps the charges of all requests",
    file: "src/ledger/charges.ts",
    from: "concerns: (requestId) => parts === 1 || sha1(requestId).readUInt32BE(8) % parts === part,",
    to: "concerns: () => true,",
    project: "lua",
    testFile: "trimming.test.ts",
    test: "charges that have left are refunded once, in whichever reading their requests are",
  },
  {
    ...ALERTS,
    name: "no page while the upstream answers 429 to nearly all",
    from: "/ sum by (kind) (rate(tollgate_upstream_duration_seconds_count[5m])) > 0.5",
    to: "/ sum by (kind) (rate(tollgate_upstream_duration_seconds_count[5m])) > 5",
  },
  {
    ...ALERTS,
    name: "no ticket while generations take several times as long as before",
    from: "> 3 * (",
    to: "> 300 * (",
  },
];

/** Of the tree beside the sources. */
const TESTED_WITH = ["test", "tools", "docs", "deploy", "tsconfig.json", "vitest.config.ts"];
/** Programs that were fetched once. */
const FETCHED = ".tollgate";
const TEST_MS_MAX = 180_000;

/**
 * Runs for each seeded bug the test that must fail, on a copy of the tree that has the bug, and on one that has none. Met when it fails
 * there and passes here. `SOURCE_MUTANTS` chooses those whose name has this text.
 */
export async function runSourceMutants({ folder, progress }: RunOptions): Promise<Verdict> {
  const wanted = process.env.SOURCE_MUTANTS ?? "";
  const planted = SOURCE_MUTANTS.filter(({ name }) => name.includes(wanted));
  const right = copyTree(join(folder, "right"), []);
  /** The tests' output without a bug: some stand for several. */
  const without = new Map<string, Promise<TestOutput>>();
  const criteria: Criterion[] = [];
  for (const [at, mutant] of planted.entries()) {
    const { name, project, testFile, test } = mutant;
    const what = `${project}/${testFile}: ${test}`;
    without.set(what, without.get(what) ?? run(mutant, right));
    const before = await without.get(what)!;
    const after = await run(mutant, copyTree(join(folder, String(at)), [mutant]));
    const met = before.verdict === "passed" && after.verdict === "failed";
    const figure = met ? `caught by ${what}` : `${what}: ${after.verdict}, without the bug ${before.verdict}`;
    progress(`${name}: ${figure}`);
    criteria.push({ name, met, figure, violations: met ? [] : [before.output, after.output] });
  }
  return { met: criteria.length > 0 && criteria.every(({ met }) => met), criteria, uncharged: [] };
}

function copyTree(folder: string, patches: readonly Patch[]): string {
  const tree = copySources(ROOT, folder, patches);
  for (const part of TESTED_WITH) cpSync(join(ROOT, part), join(tree, part), { recursive: true });
  mkdirSync(join(ROOT, FETCHED), { recursive: true });
  symlinkSync(join(ROOT, FETCHED), join(tree, FETCHED));
  return tree;
}

interface TestOutput {
  verdict: "passed" | "failed" | "not run";
  output: string;
}

async function run({ project, testFile, test }: SourceMutant, tree: string): Promise<TestOutput> {
  const results = join(tree, "results.json");
  rmSync(results, { force: true });
  const pattern = test.replaceAll(/[.*+?^${}()|[\]\\]/g, "\\$&");
  const words = ["run", "--project", project, `test/${project}/${testFile}`, "-t", pattern, "--retry=0"];
  const output = await vitest([...words, "--reporter=json", `--outputFile=${results}`], tree);
  const found = existsSync(results) ? (JSON.parse(readFileSync(results, "utf8")) as Results).testResults : [];
  const statuses = found
    .flatMap(({ assertionResults }) => assertionResults)
    .filter(({ fullName }) => fullName.includes(test))
    .map(({ status }) => status);
  const isFailed = statuses.includes("failed");
  const verdict = isFailed ? "failed" : statuses.includes("passed") ? "passed" : "not run";
  return { verdict, output: output.slice(-4000) };
}

/** As vitest reports it as JSON. */
interface Results {
  testResults: { assertionResults: { status: string; fullName: string }[] }[];
}

/** @returns what it wrote, once it has ended */
function vitest(words: string[], cwd: string): Promise<string> {
  const child = spawn(process.execPath, [join(ROOT, "node_modules/vitest/vitest.mjs"), ...words], {
    cwd,
    env: { ...process.env, NO_COLOR: "1" },
    stdio: ["ignore", "pipe", "pipe"],
    timeout: TEST_MS_MAX,
    killSignal: "SIGKILL",
  });
  let output = "";
  for (const stream of [child.stdout, child.stderr])
    stream.setEncoding("utf8").on("data", (text: string) => {
      output += text;
    });
  return new Promise((resolve) => child.once("close", () => resolve(output)));
}
