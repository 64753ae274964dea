import { StoreError } from "./reasons.ts";

/** How records are laid out, as `tg:meta layout` says. */
export const LAYOUT = "1";

/** In the place of a layout while `tollgate archive restore` fills the store. */
export const RESTORING = "restoring";

/** @returns why a used store of this layout is refused, and what to do about it; undefined for the layout of now */
export function layoutRefusal(layout: string | undefined) {
  if (layout === LAYOUT) return undefined;
  if (layout === RESTORING)
    return {
      why: "the store is being restored from the archive",
      advice:
        "wait until `tollgate archive restore` has ended, or empty Redis and restore again if that was interrupted",
    };
  return {
    why: `the store has ${layout === undefined ? "no layout" : `layout ${layout}`}, and this version of Tollgate uses layout ${LAYOUT} alone`,
    advice: "use the version that wrote it, or another Redis",
  };
}

/** @throws StoreError for a used store of another layout */
export function requireServed(layout: string | undefined): void {
  const refusal = layoutRefusal(layout);
  if (refusal) throw new StoreError(refusal.why, refusal.advice);
}
