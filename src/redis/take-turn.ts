import { randomUUID } from "node:crypto";
import { turn } from "../scripts/turn.ts";
import type { Connection } from "./connection.ts";

/** @param name of the marker, which expires by itself @returns true for one gateway per interval */
export const takeTurn = (
  { ofName }: Pick<Connection, "ofName">,
  name: string,
  intervalMs: number,
): Promise<boolean> => ofName(name).run(turn, { name, holder: randomUUID(), turnMs: intervalMs });
