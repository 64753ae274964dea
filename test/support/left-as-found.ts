import { afterAll, beforeAll, vi } from "vitest";

// Test files of a project share processes. One that leaves a process other than it found it would change what the next one proves.
const found = (): Record<string, string> => ({
  folder: process.cwd(),
  // A variable that was taken out and put back stands at another place.
  environment: JSON.stringify(Object.entries(process.env).sort()),
  timers: vi.isFakeTimers() ? "fake" : "real",
});

let before: Record<string, string>;

beforeAll(() => {
  before = found();
});

afterAll(() => {
  const after = found();
  const changed = Object.keys(after).filter((name) => after[name] !== before[name]);
  if (changed.length > 0) throw new Error(`this file leaves its process with other ${changed.join(", ")}`);
});
