import type { GenerationEndpoint } from "../domain/endpoints.ts";
import type { Problem } from "../domain/errors.ts";
import { type PriceList, priceListAt, priceOf } from "../domain/generation.ts";
import { multipliedPrice } from "../domain/money.ts";
import { Dialect } from "../upstream/dialect.ts";
import { createRequest } from "../upstream/upstream.ts";
import { isRelaying, validateBody, withAddress } from "./relayed-body.ts";
import type { Config } from "./runtime-config.ts";

interface Quote {
  /** The price of a generation: the list price times the multiplier, rounded up. */
  price: number;
  listPrice: number;
  list: PriceList;
}

/** Validates a body as the public port does, and prices what would be sent. @param multiplier a decimal */
export function quote(
  config: Pick<Config, "priceLists" | "sourceVideoHost" | "upstream" | "webhooks">,
  endpoint: GenerationEndpoint,
  body: unknown,
  { atMs, multiplier }: { atMs: number; multiplier: string },
): Quote | { problems: readonly Problem[] } {
  const validation = validateBody(config, endpoint, body);
  if (!validation.ok) return { problems: validation.problems };
  // Behind a relay the customer's address does not go upstream.
  const sent = isRelaying(config) ? withAddress(validation, undefined) : validation;
  const request = createRequest(new Dialect(config.upstream.dialect), { endpoint, ...sent });
  if ("unsupported" in request) return { problems: request.unsupported };
  if ("outcome" in request) return { problems: [{ path: "", message: request.detail }] };
  const list = priceListAt(config.priceLists, atMs);
  const listPrice = priceOf(list.table, endpoint, validation.body);
  return { price: multipliedPrice(listPrice, multiplier), listPrice, list };
}
