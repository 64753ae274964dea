/**
 * A delay that differs each time, so that many gateways that lose a server at one moment do not come back to it at one moment.
 * @param share by how much it differs at most
 */
export const jittered = (delayMs: number, share = 0.25): number =>
  delayMs * (1 - share + 2 * share * Math.random());
