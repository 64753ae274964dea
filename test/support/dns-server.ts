import { createSocket } from "node:dgram";
import { once } from "node:events";
import { onTestFinished } from "vitest";

const TYPE_A = 1;
const TYPE_AAAA = 28;

/** Answers for each query of a name, in turn; the last one for all that follow. IPv4 and IPv6 addresses. */
export type Zone = Record<string, readonly (readonly string[])[]>;

/**
 * A DNS server on loopback that answers what the test wants, also something else each time.
 * @returns its address for `Resolver.setServers`, and how often it was asked for the IPv4 addresses of a name
 */
export async function givenDns(zone: Zone) {
  const queries = new Map<string, number>();
  const server = createSocket("udp4");
  server.on("message", (query, { port, address }) => {
    const { name, type, end } = questionOf(query);
    const answers = zone[name];
    // Each lookup asks for A and AAAA: both get the same turn.
    const turn = type === TYPE_A ? (queries.get(name) ?? 0) : Math.max(0, (queries.get(name) ?? 1) - 1);
    if (type === TYPE_A) queries.set(name, turn + 1);
    const all = answers?.[Math.min(turn, answers.length - 1)];
    const wanted = all?.filter((each) => each.includes(":") === (type === TYPE_AAAA)) ?? [];
    server.send(answerTo(query.subarray(0, end), wanted, all === undefined), port, address);
  });
  server.bind(0, "127.0.0.1");
  await once(server, "listening");
  onTestFinished(() => void server.close());
  return { address: `127.0.0.1:${server.address().port}`, queries: (name: string) => queries.get(name) ?? 0 };
}

function questionOf(query: Buffer): { name: string; type: number; end: number } {
  const labels: string[] = [];
  let at = 12;
  for (let length = query[at] ?? 0; length > 0; length = query[at] ?? 0) {
    labels.push(query.toString("latin1", at + 1, at + 1 + length));
    at += length + 1;
  }
  return { name: labels.join(".").toLowerCase(), type: query.readUInt16BE(at + 1), end: at + 5 };
}

/** RFC 1035 4.1. No name is known to it that the zone has not. */
function answerTo(question: Buffer, addresses: readonly string[], isUnknown: boolean): Buffer {
  const head = Buffer.from(question);
  head.writeUInt16BE(isUnknown ? 0x8183 : 0x8180, 2);
  head.writeUInt16BE(addresses.length, 6);
  head.fill(0, 8, 12);
  return Buffer.concat([head, ...addresses.map(record)]);
}

function record(address: string): Buffer {
  const data = address.includes(":") ? ipv6Bytes(address) : Buffer.from(address.split(".").map(Number));
  const head = Buffer.alloc(12);
  head.writeUInt16BE(0xc00c, 0);
  head.writeUInt16BE(data.length === 4 ? TYPE_A : TYPE_AAAA, 2);
  head.writeUInt16BE(1, 4);
  head.writeUInt16BE(data.length, 10);
  return Buffer.concat([head, data]);
}

function ipv6Bytes(address: string): Buffer {
  const [before = "", after] = address.split("::");
  const parts = (text: string): string[] => (text === "" ? [] : text.split(":"));
  const zeros = 8 - parts(before).length - parts(after ?? "").length;
  const all =
    after === undefined ? parts(before) : [...parts(before), ...Array(zeros).fill("0"), ...parts(after)];
  return Buffer.from(all.map((part) => part.padStart(4, "0")).join(""), "hex");
}
