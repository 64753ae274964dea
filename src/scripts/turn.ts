import type { Script } from "./script-definition.ts";

interface TurnCall {
  name: string;
  /** Who takes it, or goes on with it. */
  holder: string;
  turnMs: number;
}

/** Takes the turn to do what one process at a time does. @returns whether it is taken */
export const turn: Script<TurnCall, boolean> = {
  name: "turn",
  isBatched: true,
  keys: ({ name }) => [name],
  args: ({ holder, turnMs }) => [holder, turnMs],
  read: ([outcome]) => outcome === "taken",
};
