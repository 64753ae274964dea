import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { freePort } from "../../src/sandbox/redis.ts";
import { processTree, residentBytes } from "../cpu.ts";
import { emptyStore, issueKeys } from "../keys.ts";
import { saturate } from "../load/wrk.ts";
import { OTHER_CORES, startPinned } from "../processes.ts";
import type { Outcome, Scenario } from "../scenario.ts";
import { gatewaySubject } from "../subjects/gateway.ts";
import { nodeSubject } from "../subjects/node.ts";
import type { RunningSubject, Subject } from "../subjects/subject.ts";
import { judge, short } from "../targets.ts";
import type { Tree } from "../tree.ts";
import { answering, type World } from "../world.ts";
import { compare, disturbances, type Entry, ratioOf, requireAnswers, tableOf } from "./compare.ts";

const UPSTREAM = join(import.meta.dirname, "../load/upload-upstream.ts");
const FILE_BYTES = 10_000_000;
const CONNECTIONS = 4;
const MANY_CONNECTIONS = 20;
const MANY_SECONDS = 8;
const WARM_UP_SECONDS = 3;
const SAMPLE_MS = 50;
/** The young generation of V8 keeps its first size: it grows once, by some 30 MB, under any load. */
const WITHOUT_GROWTH = ["--max-semi-space-size=1"];

export const uploads: Scenario = {
  title: "Uploads of 10 MB",
  quick: false,
  needs: ["taskset", "wrk", "nginx", "node-peers"],
  targets: ["uploadCpu", "uploadMemory"],
  async run(context): Promise<Outcome> {
    const [tree] = context.trees as [Tree];
    return withUploadUpstream(context.world, async (world) => {
      const subjects = [gatewaySubject(tree), nodeSubject("http-proxy-3 alone", "http-proxy-3.js")];
      const entries = subjects.map((subject) => uploadEntry(world, subject, tree));
      const intervals = await compare({ ...context, world }, entries);
      const extras: number[] = [];
      const bounded = [
        gatewaySubject(tree, { nodeArgs: WITHOUT_GROWTH }),
        nodeSubject("http-proxy-3 alone", "http-proxy-3.js", { nodeArgs: WITHOUT_GROWTH }),
      ];
      for (const subject of bounded) extras.push(await extraMb(world, subject, tree));
      return {
        method: `A form with one JPEG of ${FILE_BYTES} bytes over ${CONNECTIONS} connections. Extra memory: the most that was resident while ${MANY_CONNECTIONS} uploads ran at a time, less what was resident after a warm-up with one at a time, for each of them. V8's young generation, which grows once by some 30 MB under any load, keeps its first size for this figure.`,
        tables: [
          tableOf(intervals),
          {
            columns: ["", "extra MB for each upload"],
            rows: subjects.map(({ name }, at) => [name, short(extras[at]!)]),
          },
        ],
        verdicts: [
          judge("uploadCpu", ratioOf(intervals, [tree.name, "http-proxy-3 alone"])),
          judge("uploadMemory", extras[0]!),
        ],
        disturbed: disturbances(intervals),
        figures: { ...Object.fromEntries(intervals), extras },
      };
    });
  },
};

/** Runs something in a world whose upstream takes uploads. */
export async function withUploadUpstream<T>(world: World, run: (world: World) => Promise<T>): Promise<T> {
  const port = await freePort();
  const upstream = await startPinned(process.execPath, [UPSTREAM, String(port)], {
    folder: world.folder,
    name: "upload-upstream",
    cores: OTHER_CORES,
  });
  try {
    const upstreamUrl = `http://127.0.0.1:${port}`;
    await answering(upstreamUrl, "the upstream of uploads");
    return await run({ ...world, upstreamUrl });
  } finally {
    await upstream.stop();
  }
}

export const uploadEntry = (world: World, subject: Subject, tree: Tree): Entry => ({
  label: subject.name,
  subject,
  tree,
  keys: 1,
  connections: CONNECTIONS,
  targets: ([key]) => writeUpload(world, key!.key),
  check: (interval) => requireAnswers(interval, "success"),
});

/** Lua that makes the picture: its first bytes, then noise that repeats, for a form's reader looks at each byte. */
const PICTURE = `(function()
  local bytes, x = {}, 1
  for i = 1, 65521 do x = (x * 16807) % 2147483647; bytes[i] = string.char(math.floor(x / 8) % 256) end
  local noise = table.concat(bytes)
  return ("\\255\\216\\255" .. string.rep(noise, math.ceil(${FILE_BYTES} / #noise))):sub(1, ${FILE_BYTES})
end)()`;

/** As long as curl's: a form's reader skips by its length. */
const BOUNDARY = "------------------------tollgatebenchmark1234";

/** The file of targets: one form with the picture. */
function writeUpload({ folder }: World, token: string): string {
  const head = [
    `--${BOUNDARY}`,
    'Content-Disposition: form-data; name="file"; filename="one.jpg"',
    "Content-Type: image/jpeg",
    "",
    "",
  ];
  const quoted = JSON.stringify(head.join("\r\n"));
  const body = `${quoted} .. ${PICTURE} .. "\\r\\n--${BOUNDARY}--\\r\\n"`;
  const type = `"multipart/form-data; boundary=${BOUNDARY}"`;
  const file = join(folder, "upload.lua");
  writeFileSync(file, `return {{"POST", "/api/v1/upload", "${token}", ${body}, ${type}}}\n`);
  return file;
}

/** Resident memory that each of many concurrent uploads adds, in MB. */
async function extraMb(world: World, subject: Subject, tree: Tree): Promise<number> {
  await emptyStore(world);
  const keys = await issueKeys(tree, world.redis, 1);
  const running: RunningSubject = await subject.start(world, keys);
  try {
    const file = writeUpload(world, keys[0]!.key);
    await saturate(world.folder, running.url, file, { seconds: WARM_UP_SECONDS, connections: 1 });
    const pids = processTree(running.pid);
    const before = residentBytes(pids);
    let most = before;
    const timer = setInterval(() => {
      most = Math.max(most, residentBytes(pids));
    }, SAMPLE_MS);
    const load = { seconds: MANY_SECONDS, connections: MANY_CONNECTIONS };
    await saturate(world.folder, running.url, file, load).finally(() => clearInterval(timer));
    return (most - before) / 1e6 / MANY_CONNECTIONS;
  } finally {
    await running.stop();
  }
}
