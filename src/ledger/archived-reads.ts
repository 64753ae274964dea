import type { ArchiveReads } from "./archive/reads.ts";

/** Opens what lists read of the archive, when it is first needed. */
export interface LazyArchive {
  open(): Promise<ArchiveReads>;
  close(): void;
}

/**
 * PostgreSQL's client is loaded by the first read.
 * @param url undefined where there is no archive
 */
export function lazyArchive(url: string | undefined): LazyArchive | undefined {
  if (url === undefined) return undefined;
  let reads: Promise<ArchiveReads> | undefined;
  return {
    open() {
      reads ??= import("./archive/reads.ts").then(({ openArchiveReads }) => openArchiveReads(url));
      return reads;
    },
    close(): void {
      void reads?.then(({ close }) => close());
    },
  };
}
