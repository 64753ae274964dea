import { randomBytes } from "node:crypto";

/** @param prefix such as `key`, in front of an underscore */
export const randomId = (prefix: string): string => `${prefix}_${randomBytes(12).toString("base64url")}`;

/** Random ids are made so often until one fits. */
const TRIES_MAX = 200;

/** The first id that fits; any other if none does. */
export function firstThat(make: () => string, fits: (id: string) => boolean): string {
  for (let tries = 0; tries < TRIES_MAX; tries++) {
    const id = make();
    if (fits(id)) return id;
  }
  return make();
}
