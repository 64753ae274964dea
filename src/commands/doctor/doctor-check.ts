export interface Check {
  name: string;
  /** False when it must be mended: then the exit code is 1. */
  ok: boolean;
  status: "ok" | "warning" | "failed";
  message: string;
  advice?: string;
}

const checkOf =
  (status: Check["status"]) =>
  (name: string, message: string, advice: string): Check => ({
    name,
    ok: status !== "failed",
    status,
    message,
    advice,
  });

export const good = (name: string, message: string): Check => ({ name, ok: true, status: "ok", message });
/** Works, but deserves a look. */
export const warning = checkOf("warning");
/** Must be mended before the gateway can be relied on. */
export const failed = checkOf("failed");

/** Checks of one name. */
export const checksOf = (name: string) => ({
  good: (message: string): Check => good(name, message),
  warning: (message: string, advice: string): Check => warning(name, message, advice),
  failed: (message: string, advice: string): Check => failed(name, message, advice),
});
