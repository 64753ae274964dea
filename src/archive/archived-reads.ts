import type { RedisNodes } from "../redis/nodes.ts";
import type { ArchiveReads, openArchiveReads } from "./reads.ts";

/** Opens what lists read of the archive, when it is first needed. */
export interface LazyArchive {
  /** @param nodes the store whose archive it has to be */
  open(nodes: RedisNodes): Promise<ArchiveReads>;
  close(): void;
}

/**
 * PostgreSQL's client is loaded by the first read.
 * @param url undefined where there is no archive
 */
export function lazyArchive(url: string | undefined): LazyArchive | undefined {
  if (url === undefined) return undefined;
  let reads: Promise<ReturnType<typeof openArchiveReads>> | undefined;
  return {
    async open(nodes) {
      reads ??= import("./reads.ts").then(({ openArchiveReads }) => openArchiveReads(url));
      return (await reads).of(nodes);
    },
    close(): void {
      void reads?.then(({ close }) => close());
    },
  };
}
