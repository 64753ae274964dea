/** Only a test that fails waits so long; a busy machine needs some of it. */
const PATIENCE_MS = 60_000;

/** Waits until a condition holds; fails loudly when it does not within a minute. */
export async function until(
  condition: () => Promise<boolean> | boolean,
  what = "the condition",
): Promise<void> {
  const deadline = Date.now() + PATIENCE_MS;
  while (!(await condition())) {
    if (Date.now() > deadline) throw new Error(`waited a minute in vain for ${what}`);
    await new Promise((resolve) => setTimeout(resolve, 5));
  }
}
