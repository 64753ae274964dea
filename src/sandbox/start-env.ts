import { chmod, writeFile } from "node:fs/promises";

/** All that decide which gateway, Redis, upstream and archive a process of Tollgate uses. */
export const VARIABLES = [
  "TOLLGATE_CONFIG",
  "HOST",
  "PORT",
  "ADMIN_HOST",
  "ADMIN_PORT",
  "ADMIN_TOKEN",
  "REDIS_URL",
  "UPSTREAM_URL",
  "UPSTREAM_API_KEY",
  "UPSTREAM_PREVIOUS_URL",
  "UPSTREAM_PREVIOUS_API_KEY",
  "FALLBACK_STRATEGY",
  "JOURNAL",
  "LOG_LEVEL",
  "ARCHIVE_URL",
  "NODE_EXTRA_CA_CERTS",
] as const;

/**
 * Writes what a gateway was started with, for the shell's `.`. What it does not have is unset, so that a command never uses
 * another Redis or archive than the gateway. A credential belongs into a file that its owner alone can read, not onto a terminal.
 */
export async function writeStartEnv(file: string, env: NodeJS.ProcessEnv): Promise<void> {
  const lines = VARIABLES.map((name) => {
    const value = env[name];
    return value ? `export ${name}='${value.replaceAll("'", "'\\''")}'\n` : `unset ${name}\n`;
  });
  await writeFile(file, lines.join(""), { mode: 0o600 });
  // The mode above counts for new files only.
  await chmod(file, 0o600);
}
