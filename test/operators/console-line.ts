import { brotliCompressSync } from "node:zlib";
import type { CDPSession } from "playwright-core";

/** A line from afar: each request takes 400 ms, and a second brings 50 KB. */
const LATENCY_MS = 400;
const BYTES_PER_MS = 50;
/** Connections to a server that browsers open. */
const AT_A_TIME = 6;
/** Samples behind those that are there. They are asked for while somebody looks, and nothing waits for them. */
const REFRESH = /\/live\?after_ms=1\d{12}$/;
/** Of the browser's tab: it is asked for once all else is there, and nothing waits for it. */
const ICON = /\/icon\.svg/;

/** An answer's headers, at most. */
const HEADER_BYTES = 1500;

export interface RecordedRequest {
  url: string;
  sentAt: number;
  /** The page's first script sent it, for which so much of the page is needed. */
  firstBytes: number | undefined;
  /** Infinite until all of it has come. */
  endedAt: number;
  bytes: number;
  /** When how much of it had come. */
  parts: { at: number; bytes: number }[];
}

/** Requests of the page to the gateway from now on, over a slow line; none that the browser has cached. @param url of the page */
export async function recorded(session: CDPSession, url: string): Promise<Map<string, RecordedRequest>> {
  const text = await (await fetch(url)).text();
  const first = text.slice(0, text.indexOf("</script>"));
  const [firstBytes, firstLines] = [
    brotliCompressSync(first).length + HEADER_BYTES,
    first.split("\n").length,
  ];
  const all = new Map<string, RecordedRequest>();
  const pace = BYTES_PER_MS * 1000;
  await session.send("Network.enable");
  await session.send("Network.emulateNetworkConditions", {
    offline: false,
    latency: LATENCY_MS,
    downloadThroughput: pace,
    uploadThroughput: pace,
  });
  session.on("Network.requestWillBeSent", ({ requestId, request: { url }, timestamp, initiator }) => {
    if (!url.startsWith("http") || REFRESH.test(url)) return;
    const frames = initiator.stack?.callFrames ?? [];
    // A request of a preload has no stack.
    const isFirst = initiator.type === "script" && frames.every(({ lineNumber }) => lineNumber < firstLines);
    all.set(requestId, {
      url,
      sentAt: timestamp,
      firstBytes: isFirst ? firstBytes : undefined,
      endedAt: Number.POSITIVE_INFINITY,
      bytes: 0,
      parts: [],
    });
  });
  session.on("Network.requestServedFromCache", ({ requestId }) => void all.delete(requestId));
  session.on("Network.responseReceived", ({ requestId, response }) => {
    if (response.fromDiskCache) all.delete(requestId);
  });
  session.on("Network.dataReceived", ({ requestId, timestamp, encodedDataLength }) => {
    const parts = all.get(requestId)?.parts;
    parts?.push({ at: timestamp, bytes: (parts.at(-1)?.bytes ?? 0) + encodedDataLength });
  });
  session.on("Network.loadingFinished", ({ requestId, timestamp, encodedDataLength }) =>
    Object.assign(all.get(requestId) ?? {}, { endedAt: timestamp, bytes: encodedDataLength }),
  );
  return all;
}

export const bytesOf = (requests: readonly RecordedRequest[]): number =>
  requests.reduce((sum, { bytes }) => sum + bytes, 0);

export const listed = (name: string, requests: readonly RecordedRequest[]): string =>
  [
    name,
    ...requests.map(({ url, sentAt, endedAt, bytes }) => `${url} ${sentAt} to ${endedAt}, ${bytes}`),
  ].join("\n");

/** How much of an answer had come at a moment. */
const hadOf = ({ endedAt, bytes, parts }: RecordedRequest, at: number): number =>
  endedAt <= at ? bytes : (parts.findLast((part) => part.at <= at)?.bytes ?? 0);

/** How much of each answer has to come before one is asked for. A machine that is busy runs the first script late, when more has come. */
const needsOf = ({ sentAt, firstBytes }: RecordedRequest, all: readonly RecordedRequest[]): number[] =>
  all.map((other, at) =>
    firstBytes === undefined ? hadOf(other, sentAt) : at === 0 ? Math.min(other.bytes, firstBytes) : 0,
  );

/**
 * The time that the line takes for it all, without what the machine of the test takes: each request waits for what it needs
 * of the others, then for a connection and for its latency, and all share the line.
 */
export function msOf(all: readonly RecordedRequest[]): number {
  const requests = all.filter(({ url }) => !ICON.test(url));
  const replayed = requests.map((one) => ({
    bytes: one.bytes,
    needs: needsOf(one, requests),
    sentMs: Number.POSITIVE_INFINITY,
    come: 0,
  }));
  for (let ms = 0; ; ms++) {
    for (const one of replayed.filter(({ sentMs }) => sentMs === Number.POSITIVE_INFINITY)) {
      const busy = replayed.filter(({ sentMs, come, bytes }) => sentMs <= ms && come < bytes).length;
      if (busy < AT_A_TIME && one.needs.every((need, at) => replayed[at]!.come >= need)) one.sentMs = ms;
    }
    const coming = replayed.filter(({ sentMs, come, bytes }) => sentMs + LATENCY_MS <= ms && come < bytes);
    for (const one of coming) one.come = Math.min(one.bytes, one.come + BYTES_PER_MS / coming.length);
    if (replayed.every(({ come, bytes }) => come >= bytes)) return ms;
    if (ms > 60_000) throw new Error(listed("a request waits for ever", requests));
  }
}
