import { connect, type Socket } from "node:net";

export type RawClient = Awaited<ReturnType<typeof rawClient>>;

/** A client that decides itself when it sends which bytes, and when it leaves. */
export async function rawClient(url: string) {
  const { hostname, port } = new URL(url);
  const socket: Socket = connect({ host: hostname, port: Number(port), noDelay: true });
  let received = "";
  const listeners = new Set<() => void>();
  const changed = (): void => {
    for (const listener of [...listeners]) listener();
  };
  let closed = false;
  socket.setEncoding("latin1");
  socket.on("data", (text: string) => {
    received += text;
    changed();
  });
  socket.on("error", () => undefined);
  socket.on("close", () => {
    closed = true;
    changed();
  });
  await new Promise<void>((resolve, reject) => {
    socket.once("connect", () => resolve());
    socket.once("error", reject);
  });

  function when(condition: () => boolean): Promise<void> {
    return new Promise((resolve) => {
      const check = (): void => {
        if (!condition()) return;
        listeners.delete(check);
        resolve();
      };
      listeners.add(check);
      check();
    });
  }

  return {
    send: (text: string): boolean => socket.write(text),
    received: (): string => received,
    /** Resolves once that many complete answers have come, or the connection has ended. */
    answers: (count: number): Promise<void> => when(() => closed || heads(received).length >= count),
    ended: (): Promise<void> => when(() => closed),
    /** Leaves without a word, as a crashed client does. */
    reset: (): void => void socket.resetAndDestroy(),
    close: (): void => void socket.destroy(),
  };
}

/** The heads of all answers whose bodies are complete. */
export function heads(received: string): string[] {
  const found: string[] = [];
  let rest = received;
  for (;;) {
    const end = rest.indexOf("\r\n\r\n");
    if (end < 0) return found;
    const head = rest.slice(0, end);
    const bodyBytes = Number(/^content-length: (\d+)/im.exec(head)?.[1] ?? 0);
    if (rest.length < end + 4 + bodyBytes) return found;
    found.push(head);
    rest = rest.slice(end + 4 + bodyBytes);
  }
}

/** A POST as it goes over the wire, head and body apart. */
export function rawPost(path: string, key: string, body: object, headers: readonly string[] = []) {
  const text = JSON.stringify(body);
  const lines = [
    `POST ${path} HTTP/1.1`,
    "Host: gateway.test",
    `Authorization: Bearer ${key}`,
    "Content-Type: application/json",
    `Content-Length: ${Buffer.byteLength(text)}`,
    ...headers,
  ];
  return { head: `${lines.join("\r\n")}\r\n\r\n`, body: text };
}
