import { type DestinationStream, destination, type Logger, pino } from "pino";

export type { Logger } from "pino";

/**
 * The process's logger: JSON lines on stdout, written synchronously (an asynchronous destination can hang the
 * exit when its reader is gone). Paths that could hold a credential are censored wherever they turn up.
 */
export function createLogger(
  level: string,
  to: DestinationStream = destination({ fd: 1, sync: true }),
): Logger {
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
