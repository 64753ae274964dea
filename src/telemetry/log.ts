import { type DestinationStream, destination, type Logger, pino } from "pino";

export type { Logger } from "pino";

/**
 * The process's logger: JSON lines on stdout, written synchronously (an asynchronous destination can hang the
 * exit when its reader is gone). Paths that could hold a credential are censored wherever they turn up.
 */
export function createLogger(level: string, to: DestinationStream = stdout()): Logger {
  return pino(
    {
      level,
      base: { service: "tollgate" },
      timestamp: () => `,"time":"${new Date().toISOString()}"`,
      formatters: { level: (label) => ({ level: label }) },
      redact: {
        paths: ["authorization", "*.authorization", "apiKey", "*.apiKey", "key", "*.headers"],
        censor: "[redacted]",
      },
    },
    to,
  );
}

/** Lines that could not be written since the start: a full disk, a reader that has gone. */
export const dropped = { lines: 0 };

/** Standard output that never ends the process: a line that cannot be written is counted instead. */
function stdout(): DestinationStream {
  const out = destination({ fd: 1, sync: true });
  out.on("error", () => undefined);
  return {
    write(line) {
      try {
        out.write(line);
      } catch {
        dropped.lines++;
      }
    },
  };
}
