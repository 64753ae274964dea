/** Addresses inside networks, each the lowest, a middle or the highest of its range. */
export const INNER_IPV4 = [
  "0.0.0.0",
  "0.1.2.3",
  "10.0.0.1",
  "10.255.255.255",
  "100.64.0.1",
  "100.100.100.200",
  "127.0.0.1",
  "127.255.255.254",
  "168.63.129.16",
  "169.254.169.254",
  "169.254.170.2",
  "172.16.0.1",
  "172.31.255.254",
  "192.0.0.192",
  "192.0.2.1",
  "192.168.0.1",
  "192.168.255.254",
  "198.18.0.1",
  "198.51.100.7",
  "203.0.113.7",
  "224.0.0.1",
  "240.0.0.1",
  "255.255.255.255",
];

export const INNER_IPV6 = [
  "::",
  "::1",
  "::7f00:1",
  "100::1",
  "2001:db8::1",
  "2001:2::1",
  "3fff::1",
  "5f00::1",
  "fc00::1",
  "fd00:ec2::254",
  "fd20:ce::254",
  "fdff:ffff:ffff:ffff:ffff:ffff:ffff:ffff",
  "fe80::1",
  "febf::1",
  "fec0::1",
  "ff02::1",
  "64:ff9b:1::a00:1",
];

/** Where clouds answer with credentials: AWS and most others, its containers, Tencent, Scaleway, Alibaba, Azure, Oracle. */
export const METADATA_IPV4 = [
  "169.254.169.254",
  "169.254.170.2",
  "169.254.170.23",
  "169.254.0.23",
  "169.254.42.42",
  "100.100.100.200",
  "168.63.129.16",
  "192.0.0.192",
];

export const METADATA_IPV6 = [
  "fd00:ec2::254",
  "fd00:ec2::23",
  "fd20:ce::254",
  "fd00:c1::a9fe:a9fe",
  "fd00:42::42",
];

export const METADATA_NAMES = [
  "metadata",
  "metadata.google.internal",
  "metadata.goog",
  "metadata.azure.internal",
  "metadata.tencentyun.com",
  "instance-data",
  "instance-data.ec2.internal",
];

/** Names that lead into the network, or nowhere outside of it. */
export const INNER_NAMES = [
  "localhost",
  "LOCALHOST",
  "localhost.",
  "api.localhost",
  "api.localhost.",
  "localhost.localdomain",
  "printer.local",
  "metadata",
  "metadata.google.internal",
  "metadata.google.internal.",
  "METADATA.Google.Internal",
  "metadata.goog",
  "instance-data",
  "instance-data.ec2.internal",
  "vault.internal",
  "wiki.intranet",
  "nas.lan",
  "dc.corp",
  "nas.home",
  "db.private",
  "router.home.arpa",
  "redis",
  "redis.",
  "ｌｏｃａｌｈｏｓｔ",
  "local\u00adhost",
  "ⓛocalhost",
  "metadata。google。internal",
];

const octets = (address: string): number[] => address.split(".").map(Number);
const toNumber = (address: string): number => octets(address).reduce((sum, octet) => sum * 256 + octet, 0);
const hex = (value: number, digits: number): string => value.toString(16).padStart(digits, "0");
const words = (address: string): string => {
  const [a = 0, b = 0, c = 0, d = 0] = octets(address);
  return `${hex(a * 256 + b, 1)}:${hex(c * 256 + d, 1)}`;
};
const inverted = (address: string): string =>
  words(
    octets(address)
      .map((octet) => 255 - octet)
      .join("."),
  );
const wide = (text: string, zero: number): string =>
  text.replace(/\d/g, (digit) => String.fromCodePoint(zero + Number(digit)));
const encoded = (text: string): string => [...text].map((char) => `%${hex(char.charCodeAt(0), 2)}`).join("");

/** How an IPv4 address can be written as the host of a URL. */
export const IPV4_FORMS: Record<string, (address: string) => string> = {
  dotted: (address) => address,
  "trailing dot": (address) => `${address}.`,
  decimal: (address) => String(toNumber(address)),
  "decimal and dot": (address) => `${toNumber(address)}.`,
  hex: (address) => `0x${hex(toNumber(address), 8)}`,
  HEX: (address) => `0X${hex(toNumber(address), 8).toUpperCase()}`,
  "long hex": (address) => `0x${hex(toNumber(address), 24)}`,
  octal: (address) => `0${toNumber(address).toString(8)}`,
  "dotted hex": (address) =>
    octets(address)
      .map((octet) => `0x${hex(octet, 1)}`)
      .join("."),
  "dotted octal": (address) =>
    octets(address)
      .map((octet) => `0${octet.toString(8)}`)
      .join("."),
  "long octal": (address) =>
    octets(address)
      .map((octet) => `0000${octet.toString(8)}`)
      .join("."),
  mixed: (address) =>
    octets(address)
      .map((octet, at) => (at % 2 ? `0x${hex(octet, 2)}` : `0${octet.toString(8)}`))
      .join("."),
  "two parts": (address) => `${octets(address)[0]}.${toNumber(address) % 2 ** 24}`,
  "three parts": (address) => `${octets(address)[0]}.${octets(address)[1]}.${toNumber(address) % 2 ** 16}`,
  "full width": (address) => wide(address, 0xff10),
  "full-width dots": (address) => address.replaceAll(".", "．"),
  "ideographic dots": (address) => address.replaceAll(".", "。"),
  "half-width dots": (address) => address.replaceAll(".", "｡"),
  bold: (address) => wide(address, 0x1d7ce),
  monospace: (address) => wide(address, 0x1d7f6),
  percent: encoded,
  "soft hyphen": (address) => address.replace(".", ".\u00ad"),
  "zero width": (address) => address.replace(".", "\u200b."),
};

/** How an IPv4 address can be written inside an IPv6 one. */
export const EMBEDDED_FORMS: Record<string, (address: string) => string> = {
  mapped: (address) => `::ffff:${words(address)}`,
  "mapped, dotted": (address) => `::ffff:${address}`,
  "mapped, long": (address) => `0:0:0:0:0:ffff:${words(address)}`,
  "mapped, upper": (address) => `::FFFF:${words(address).toUpperCase()}`,
  compatible: (address) => `::${words(address)}`,
  translated: (address) => `::ffff:0:${words(address)}`,
  nat64: (address) => `64:ff9b::${words(address)}`,
  "nat64, dotted": (address) => `64:ff9b::${address}`,
  "local nat64": (address) => `64:ff9b:1::${words(address)}`,
  "6to4": (address) => `2002:${words(address)}::1`,
  teredo: (address) => `2001:0:4136:e378:8000:63bf:${inverted(address)}`,
  "teredo server": (address) => `2001:0:${words(address)}:8000:63bf:3fff:fdd2`,
  isatap: (address) => `2a00:1450:1:2:0:5efe:${words(address)}`,
  "isatap, unique": (address) => `2a00:1450:1:2:200:5efe:${words(address)}`,
};

/** Each form of each inner address as the host of a URL. @param ipv4 addresses that each IPv4 form is made of */
export function innerAddresses(ipv4: readonly string[]): string[] {
  const embedded = Object.values(EMBEDDED_FORMS).flatMap((form) => ipv4.map(form));
  const ipv6 = [...INNER_IPV6, ...METADATA_IPV6];
  return [
    ...Object.values(IPV4_FORMS).flatMap((form) => ipv4.map(form)),
    ...[...ipv6, ...embedded].map((address) => `[${address}]`),
    ...ipv6.map((address) => `[${address}%25eth0]`),
  ];
}

/** Each form of each inner address and name as the host of a URL, more than a thousand. */
export const innerHosts = (): string[] => [
  ...innerAddresses([...new Set([...INNER_IPV4, ...METADATA_IPV4])]),
  ...INNER_NAMES,
  ...METADATA_NAMES,
];
