import { setTimeout as wait } from "node:timers/promises";

/** Between tries. Most slots have some hundred small names, which move in milliseconds. */
const WAITS_MS = [10, 20, 40, 80];

/** True if a node has refused a command because its slot is migrating. The command has done nothing. */
export const isMoving = (error: unknown): boolean =>
  error instanceof Error && /^(ASK|TRYAGAIN) /.test(error.message);

/** Another node has the slot. The call has done nothing: each script fails so at its first command. */
export const hasMoved = (error: unknown): boolean =>
  error instanceof Error && /^MOVED |^ERR Script attempted to access a non local key/.test(error.message);

/** Again for a moment while the slot is on its way to another node. @throws what the last try throws */
export async function onceMoved<T>(command: () => Promise<T>): Promise<T> {
  for (const waitMs of WAITS_MS) {
    try {
      return await command();
    } catch (error) {
      if (!isMoving(error)) throw error;
      await wait(waitMs);
    }
  }
  return command();
}
