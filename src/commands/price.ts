import { readFileSync } from "node:fs";
import type { Command } from "commander";
import { API_PREFIX, GENERATION_ENDPOINTS, type GenerationEndpoint } from "../domain/endpoints.ts";
import { validateGeneration } from "../domain/generation-body.ts";
import { parseJsonBytes } from "../domain/json.ts";
import { type Price, priceOf } from "../domain/prices.ts";
import { JSON_BODY_BYTES_MAX } from "../domain/request-sizes.ts";
import { nearest } from "../domain/suggest.ts";
import { OperatorError } from "../records/operator-error.ts";
import { Dialect } from "../upstream/dialect.ts";
import { createRequest } from "../upstream/upstream.ts";
import { requireConfig } from "./local-config.ts";
import { command } from "./options.ts";
import { type CommandOutput, print, shownPath } from "./output.ts";
import { table } from "./terminal.ts";

export function priceCommand(): Command {
  return command("price", "what a generation would cost by this machine's configuration")
    .argument("<endpoint>", `such as ${GENERATION_ENDPOINTS[0]}`)
    .argument("[body]", "file with the JSON body, or - for standard input; left out: the endpoint's prices")
    .action((name: string, body: string | undefined, flags: { json?: boolean }) => {
      const endpoint = endpointOf(name);
      print(body === undefined ? listed(endpoint) : priced(endpoint, readBody(body)), flags);
    });
}

function endpointOf(name: string): GenerationEndpoint {
  const path = name.replace(new RegExp(`^/?(${API_PREFIX.slice(1)})?`), "");
  const endpoint = GENERATION_ENDPOINTS.find((known) => known === path);
  if (endpoint !== undefined) return endpoint;
  const meant = nearest(path, GENERATION_ENDPOINTS);
  const advice =
    meant === undefined ? `there are ${GENERATION_ENDPOINTS.join(", ")}` : `did you mean ${meant}?`;
  throw new OperatorError(`${name} is no generation endpoint; ${advice}`);
}

function readBody(name: string): Buffer {
  try {
    // 0 is standard input.
    return readFileSync(name === "-" ? 0 : name);
  } catch (error) {
    throw new OperatorError(`the body cannot be read: ${(error as Error).message}`);
  }
}

function priced(endpoint: GenerationEndpoint, bytes: Buffer): CommandOutput {
  const { prices, pricesFile, sourceVideoHost, upstream } = requireConfig();
  const refused = (problems: { path: string; message: string }[]): CommandOutput => ({
    ok: false,
    json: { ok: false, endpoint, problems },
    text: `The gateway would refuse this body:\n${problems.map(({ message }) => `  ${message}`).join("\n")}`,
  });
  if (bytes.length > JSON_BODY_BYTES_MAX) {
    return refused([{ path: "", message: `it is larger than ${JSON_BODY_BYTES_MAX} bytes` }]);
  }
  const parsed = parseJsonBytes(bytes);
  if (!parsed.ok) return refused([{ path: "", message: parsed.message }]);
  const validation = validateGeneration(endpoint, parsed.value, sourceVideoHost);
  if (!validation.ok) return refused(validation.problems);
  const { body, text } = validation;
  const request = createRequest(new Dialect(upstream.dialect), { endpoint, body, text });
  if ("unsupported" in request) return refused([...request.unsupported]);
  if ("outcome" in request) return refused([{ path: "", message: request.detail }]);
  const price = priceOf(prices, endpoint, body);
  return {
    json: { ok: true, endpoint, price, prices_file: pricesFile },
    text: `${endpoint}: ${price} credits, by ${shownPath(pricesFile)}`,
  };
}

function listed(endpoint: GenerationEndpoint): CommandOutput {
  const { prices, pricesFile } = requireConfig();
  const price = prices[endpoint];
  return {
    json: { ok: true, endpoint, price, prices_file: pricesFile },
    text: `${endpoint}, by ${shownPath(pricesFile)}:\n\n${priceText(price)}`,
  };
}

function priceText(price: Price): string {
  if (typeof price === "number") return `${price} credits`;
  if ("by_n_frames" in price) return table(["NFRAMES", "CREDITS"], Object.entries(price.by_n_frames));
  const rows = Object.entries(price.by_duration_and_quality).flatMap(([seconds, byQuality]) =>
    Object.entries(byQuality).map(([quality, credits]) => [seconds, quality, credits]),
  );
  return table(["DURATION", "QUALITY", "CREDITS"], rows);
}
