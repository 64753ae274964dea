import type { RedisNodes } from "../redis/nodes.ts";
import type { ArchiveReads, openArchiveReads } from "./reads.ts";

export interface LazyArchive {
  open(nodes: RedisNodes): Promise<ArchiveReads>;
  close(): void;
}

/** PostgreSQL's client is loaded by the first read. */
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
