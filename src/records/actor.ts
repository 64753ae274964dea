import { userInfo } from "node:os";

export interface Actor {
  /** `<token id> <label>`, `admin_token`, `console` or `cli <name>`. */
  by: string;
  /** The `X-Request-Id` of the call; empty for the command line. */
  requestId: string;
}

/** The command line, used by this person; the system user is the default. */
export const cliActor = (name: string = userInfo().username): Actor => ({ by: `cli ${name}`, requestId: "" });

/** An actor as the scripts take it (lua/include/audit.lua): request id, space, who. */
export const actorText = ({ by, requestId }: Actor): string => `${requestId} ${by}`;
