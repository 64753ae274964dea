import type { RedisNodes } from "../redis/nodes.ts";
import type { PartitionReads, Unread } from "../redis/partition-reads.ts";
import type { Findings, Report } from "./fold.ts";

export interface Verification extends Findings {
  /** Trimmed entries count by their checkpoints. */
  accounts: number;
  entries: number;
  credits: { recharged: number; consumed: number; refunded: number; adjusted: number };
  unread?: Unread;
}

export interface Run {
  nodes: RedisNodes;
  reads: PartitionReads;
  partitions: number;
  wanted: ReadonlySet<string> | undefined;
  has(partition: number): boolean;
  report: Report;
  result: Verification;
  /** Called after each page or account; may pause. */
  step(): Promise<void>;
}

export const isWanted = ({ wanted }: Run, accountId: string): boolean => !wanted || wanted.has(accountId);
