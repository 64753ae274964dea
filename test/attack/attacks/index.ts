import type { Attack } from "../attack.ts";
import { largeAccount } from "./accounts.ts";
import { adminTokens, loudStrangers } from "./admin.ts";
import { carelessBackend, smallToken } from "./backend.ts";
import {
  dripping,
  drippingChunks,
  drippingNeighbour,
  endlessBodies,
  refusedBodies,
  smallChunks,
} from "./bodies.ts";
import { callbacks } from "./callbacks.ts";
import { idleSockets, oddHeads } from "./connections.ts";
import { badEndpoints } from "./endpoints.ts";
import { hangingGenerations, oneKey, unknownKeys } from "./keys.ts";
import { allowCredits, allowWithoutKey, pipelining, unreadAnswers } from "./pipelining.ts";
import { credentialEcho, escapedEcho, nestedAnswer } from "./upstreams.ts";

/** In the order in which the campaign runs them. */
export const ATTACKS: readonly Attack[] = [
  credentialEcho,
  allowCredits,
  allowWithoutKey,
  pipelining,
  unreadAnswers,
  oneKey,
  hangingGenerations,
  largeAccount,
  dripping,
  drippingChunks,
  drippingNeighbour,
  endlessBodies,
  refusedBodies,
  smallChunks,
  nestedAnswer,
  idleSockets,
  escapedEcho,
  unknownKeys,
  adminTokens,
  loudStrangers,
  carelessBackend,
  smallToken,
  oddHeads,
  callbacks,
  badEndpoints,
];
