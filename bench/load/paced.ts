import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { OTHER_CORES, startPinned } from "../processes.ts";
import type { PacedJob, PacedResult } from "./paced-client.ts";
import type { Target } from "./wrk.ts";

export type { PacedResult } from "./paced-client.ts";

/**
 * Sends targets at a fixed rate and waits for all answers.
 * @param options.unsuccessfulMax the share of answers that may be other than a 200; none if not said
 * @throws when a connection broke, or more answers were not a 200
 */
export async function pace(
  folder: string,
  url: string,
  targets: readonly Target[],
  options: { seconds: number; perSecond: number; connections: number; unsuccessfulMax?: number },
): Promise<PacedResult> {
  const { seconds, perSecond, connections, unsuccessfulMax = 0 } = options;
  const { hostname, port } = new URL(url);
  const requests = targets.map((target) => bytesOf(target, hostname));
  const job: PacedJob = { host: hostname, port: Number(port), requests, seconds, perSecond, connections };
  const jobFile = join(folder, "paced.json");
  writeFileSync(jobFile, JSON.stringify(job));
  const client = join(import.meta.dirname, "paced-client.ts");
  const run = await startPinned(process.execPath, [client, jobFile], {
    folder,
    name: "paced",
    cores: OTHER_CORES,
  });
  const how = await run.ended;
  const output = readFileSync(join(folder, "paced.log"), "utf8").trim();
  const line = output.split("\n").find((text) => text.startsWith("{"));
  if (how !== "exit code 0" || line === undefined)
    throw new Error(`paced load: ${how}: ${output.slice(-500)}`);
  const result = JSON.parse(line) as PacedResult;
  if (result.unsuccessful > unsuccessfulMax * result.requests) {
    throw new Error(`paced load: ${result.unsuccessful} of ${result.requests} answers were not a 200`);
  }
  return result;
}

function bytesOf(
  { method, path, token, body = "", contentType = "application/json" }: Target,
  host: string,
): string {
  const head = [`${method} ${path} HTTP/1.1`, `Host: ${host}`, `Authorization: Bearer ${token}`];
  if (method === "POST")
    head.push(`Content-Type: ${contentType}`, `Content-Length: ${Buffer.byteLength(body)}`);
  return `${head.join("\r\n")}\r\n\r\n${body}`;
}
