/**
 * A delay that differs by up to a quarter each time. Many gateways that lose a server at one moment do not come back to it at
 * one moment.
 */
export const jittered = (delayMs: number): number => delayMs * (0.75 + Math.random() / 2);
