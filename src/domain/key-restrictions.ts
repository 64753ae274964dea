import ipaddr from "ipaddr.js";
import {
  API_PREFIX,
  GENERATION_ENDPOINTS,
  type GenerationEndpoint,
  generationEndpoint,
  noEndpoint,
} from "./endpoints.ts";
import { shown } from "./problems.ts";

// Restrictions of a key by endpoint and address. A key without restrictions has all endpoints, from any address.

/** Undefined or null: none of this kind. */
export interface KeyRestrictions {
  /** In the order of `GENERATION_ENDPOINTS`. */
  endpoints: readonly GenerationEndpoint[] | undefined;
  /** CIDR ranges. */
  addresses: readonly string[] | undefined;
}

export const ADDRESS_RANGES_MAX = 32;

type Checked<Value> = { value: Value } | { problem: string };

/** One form for every spelling: the endpoints without their prefix, each once. */
export function checkEndpoints(names: readonly string[]): Checked<GenerationEndpoint[]> {
  const found = new Set<GenerationEndpoint>();
  for (const name of names) {
    const endpoint = generationEndpoint(name);
    if (endpoint === undefined) return { problem: noEndpoint(name) };
    found.add(endpoint);
  }
  if (found.size === 0) return { problem: "name at least one endpoint; null allows all" };
  return { value: GENERATION_ENDPOINTS.filter((endpoint) => found.has(endpoint)) };
}

/** One form for every spelling: CIDR ranges, each once; an address is a range of one. */
export function checkAddresses(ranges: readonly string[]): Checked<string[]> {
  const found = new Set<string>();
  for (const range of ranges) {
    const checked = checkRange(range.trim());
    if ("problem" in checked) return checked;
    found.add(checked.value);
  }
  if (found.size === 0) return { problem: "name at least one address range; null allows all addresses" };
  if (found.size > ADDRESS_RANGES_MAX)
    return { problem: `there are at most ${ADDRESS_RANGES_MAX} address ranges` };
  return { value: [...found].sort() };
}

function checkRange(range: string): Checked<string> {
  const [address = "", bits, ...more] = range.split("/");
  const parsed = addressOf(address);
  const widest = parsed?.kind() === "ipv4" ? 32 : 128;
  const length = bits === undefined ? widest : /^\d{1,3}$/.test(bits) ? Number(bits) : Number.NaN;
  if (!parsed || more.length > 0 || !(length <= widest))
    return { problem: `${shown(range)} is no address range; write one such as 203.0.113.0/24` };
  const first = networkOf(parsed, length);
  if (first.toNormalizedString() !== parsed.toNormalizedString()) {
    const alone = `${textOf(parsed)}/${widest}`;
    return {
      problem: `${shown(range)} does not begin its range; write ${textOf(first)}/${length}, or ${alone} for the one address`,
    };
  }
  if (first instanceof ipaddr.IPv6 && first.isIPv4MappedAddress() && length >= MAPPED_BITS)
    return { value: `${first.toIPv4Address()}/${length - MAPPED_BITS}` };
  return { value: `${textOf(first)}/${length}` };
}

/** Bits in front of the IPv4 address in an IPv4-mapped one. RFC 4291 section 2.5.5.2. */
const MAPPED_BITS = 96;

type Address = ipaddr.IPv4 | ipaddr.IPv6;

/** Undefined for octal, shortened and zoned forms, which programs read differently. */
function addressOf(text: string): Address | undefined {
  if (ipaddr.IPv4.isValidFourPartDecimal(text)) return ipaddr.IPv4.parse(text);
  return text.includes(":") && !text.includes("%") && ipaddr.IPv6.isValid(text)
    ? ipaddr.IPv6.parse(text)
    : undefined;
}

const networkOf = (address: Address, bits: number): Address =>
  address instanceof ipaddr.IPv4
    ? ipaddr.IPv4.networkAddressFromCIDR(`${address}/${bits}`)
    : ipaddr.IPv6.networkAddressFromCIDR(`${address.toNormalizedString()}/${bits}`);

const textOf = (address: Address): string => address.toString();

/** The stored text; undefined for a key without restrictions. */
export function restrictionsText({ endpoints, addresses }: KeyRestrictions): string | undefined {
  const parts = [
    ...(endpoints ? [`endpoints=${endpoints.join()}`] : []),
    ...(addresses ? [`addresses=${addresses.join()}`] : []),
  ];
  return parts.length === 0 ? undefined : parts.join(";");
}

/** Unknown endpoints are left out, so that a text of a later release allows less, never more. */
export function readRestrictions(text: string | undefined): KeyRestrictions {
  const parts = new Map(
    (text ?? "").split(";").map((part) => {
      const [name = "", list = ""] = part.split("=");
      return [name, list.split(",")] as const;
    }),
  );
  const named = parts.get("endpoints");
  return {
    endpoints: named && GENERATION_ENDPOINTS.filter((endpoint) => named.includes(endpoint)),
    addresses: parts.get("addresses"),
  };
}

export interface Allowance {
  /** @param route the path of a generation endpoint, or another path, which is always allowed */
  route(route: string): boolean;
  address(address: string): boolean;
}

const GENERATION_ROUTES: ReadonlySet<string> = new Set(
  GENERATION_ENDPOINTS.map((endpoint) => API_PREFIX + endpoint),
);

export function allowanceOf(text: string): Allowance {
  const { endpoints, addresses } = readRestrictions(text);
  const routes = endpoints && new Set(endpoints.map((endpoint) => API_PREFIX + endpoint));
  const ranges = addresses?.map((range) => ipaddr.parseCIDR(range));
  return {
    route: (route) => routes === undefined || !GENERATION_ROUTES.has(route) || routes.has(route),
    address(text) {
      if (ranges === undefined) return true;
      if (!ipaddr.isValid(text)) return false;
      // An IPv4-mapped address is that IPv4 address.
      const address = ipaddr.process(text);
      return ranges.some(([range, bits]) => range.kind() === address.kind() && address.match(range, bits));
    },
  };
}
