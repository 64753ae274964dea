import ipaddr from "ipaddr.js";

/** Which addresses messages may go to beside public ones. */
export interface AddressPolicy {
  /** CIDR ranges or addresses of inner networks; plain http and any port are taken there. */
  readonly allowNetworks: readonly string[];
  /** Ports beside 443. */
  readonly allowPorts: readonly number[];
  /** A proxy that connects instead of the gateway, and checks the addresses of names itself. */
  readonly proxyUrl?: string | undefined;
}

interface Target {
  readonly protocol: string;
  readonly port: number;
}

type Address = ipaddr.IPv4 | ipaddr.IPv6;

/** Where clouds answer with credentials of the machine. Some are in no private range. */
const METADATA = new Set([
  "169.254.169.254",
  "169.254.0.23",
  "169.254.42.42",
  "169.254.170.2",
  "169.254.170.23",
  "100.100.100.200",
  "168.63.129.16",
  "192.0.0.192",
  "fd00:ec2::254",
  "fd00:ec2::23",
  "fd20:ce::254",
  "fd00:c1::a9fe:a9fe",
  "fd00:42::42",
]);

const MAPPED = ipaddr.parseCIDR("::ffff:0:0/96");
const NAT64 = ipaddr.parseCIDR("64:ff9b::/96");
const GLOBAL_UNICAST = ipaddr.parseCIDR("2000::/3");
/** Interface identifiers of ISATAP, which routers take for tunnels to an IPv4 address. RFC 5214 6.1. */
const ISATAP = new Set([0x0000, 0x0200]);

/** @returns why no message may go to this address, or undefined if one may */
export function addressProblem(address: string, target: Target, policy: AddressPolicy): string | undefined {
  const parsed = parse(address);
  if (parsed === undefined || METADATA.has(parsed.toString())) return NOT_PUBLIC;
  if (isIn(parsed, policy.allowNetworks)) return undefined;
  if (!isPublic(parsed)) return NOT_PUBLIC;
  if (target.protocol !== "https:") return "must be https";
  return isPortAllowed(target.port, policy) ? undefined : portProblem(policy);
}

export const NOT_PUBLIC = "must lead to a public address";

export const isPortAllowed = (port: number, { allowPorts }: AddressPolicy): boolean =>
  port === 443 || allowPorts.includes(port);

export const portProblem = ({ allowPorts }: AddressPolicy): string =>
  `must have port ${[443, ...allowPorts].join(" or ")}`;

/** The address that packets go to in the end: an IPv4 one behind a mapped address or NAT64. */
function parse(address: string): Address | undefined {
  // An address with a zone (fe80::1%eth0) belongs to one link.
  if (address.includes("%") || !ipaddr.isValid(address)) return undefined;
  const parsed = ipaddr.parse(address);
  if (!(parsed instanceof ipaddr.IPv6)) return parsed;
  return parsed.match(MAPPED) || parsed.match(NAT64) ? lastFourBytes(parsed) : parsed;
}

const lastFourBytes = (address: ipaddr.IPv6): ipaddr.IPv4 => new ipaddr.IPv4(address.toByteArray().slice(12));

/** 6to4, Teredo and NAT64 of local prefixes lead to IPv4 addresses that only a router knows, so none of them is public. */
function isPublic(address: Address): boolean {
  if (address.range() !== "unicast") return false;
  if (!(address instanceof ipaddr.IPv6)) return true;
  return address.match(GLOBAL_UNICAST) && !isTunnel(address);
}

const isTunnel = ({ parts }: ipaddr.IPv6): boolean => ISATAP.has(parts[4] ?? 0) && parts[5] === 0x5efe;

function isIn(address: Address, networks: readonly string[]): boolean {
  return rangesOf(networks).some((range) => range[0].kind() === address.kind() && address.match(range));
}

type Range = [Address, number];
/** Of the lists in force: parsing them takes longer than all else that is judged. */
const parsedRanges = new WeakMap<readonly string[], Range[]>();

function rangesOf(networks: readonly string[]): Range[] {
  const parsed = parsedRanges.get(networks) ?? networks.map(rangeOf);
  parsedRanges.set(networks, parsed);
  return parsed;
}

function rangeOf(network: string): Range {
  if (network.includes("/")) return ipaddr.parseCIDR(network);
  const address = ipaddr.parse(network);
  return [address, address.kind() === "ipv4" ? 32 : 128];
}
