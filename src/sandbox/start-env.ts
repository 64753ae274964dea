import { chmod, writeFile } from "node:fs/promises";

export const VARIABLES = [
  "TOLLGATE_CONFIG",
  "HOST",
  "PORT",
  "ADMIN_HOST",
  "ADMIN_PORT",
  "ADMIN_HOSTS",
  "ADMIN_TOKEN",
  "REDIS_URL",
  "UPSTREAM_URL",
  "UPSTREAM_ADAPTER",
  "UPSTREAM_API_KEY",
  "UPSTREAM_PREVIOUS_URL",
  "UPSTREAM_PREVIOUS_API_KEY",
  "FALLBACK_STRATEGY",
  "JOURNAL",
  "LOG_LEVEL",
  "ARCHIVE_URL",
  "WEBHOOK_SECRET_KEY",
  "WEBHOOK_SECRET_KEY_PREVIOUS",
  "NODE_EXTRA_CA_CERTS",
] as const;

/** For the shell's `.`. Unused variables are unset, so that a command never uses another store. */
export async function writeStartEnv(file: string, env: NodeJS.ProcessEnv): Promise<void> {
  const lines = VARIABLES.map((name) => {
    const value = env[name];
    return value ? `export ${name}='${value.replaceAll("'", "'\\''")}'\n` : `unset ${name}\n`;
  });
  await writePrivately(file, lines.join(""));
}

/** Readable by the owner alone. */
export async function writePrivately(file: string, text: string): Promise<void> {
  await writeFile(file, text, { mode: 0o600 });
  // The mode above counts for new files only.
  await chmod(file, 0o600);
}
