import type { RedisNodes } from "../redis/nodes.ts";
import type { PartitionReads, Unread } from "../redis/partition-reads.ts";
import type { Findings, Report } from "./fold.ts";

export interface Verification extends Findings {
  /** Accounts that were compared, and their ledger entries; of those that have left the ledger, what the checkpoints say. */
  accounts: number;
  entries: number;
  /** Credits that these entries moved, by what they were; all positive. */
  credits: { recharged: number; consumed: number; refunded: number; adjusted: number };
  /** Partitions of which not everything could be compared, because their servers are away. */
  unread?: Unread;
}

/** One run: what it reads from, whom it asks about, and what it has found. */
export interface Run {
  nodes: RedisNodes;
  reads: PartitionReads;
  partitions: number;
  /** Undefined for all accounts. */
  wanted: ReadonlySet<string> | undefined;
  /** Whether any of them lives in this partition. */
  has(partition: number): boolean;
  report: Report;
  result: Verification;
  /** Says that the run goes on, and may let others work; called after each page or account. */
  step(): Promise<void>;
}

/** Whether the run compares this account. */
export const isWanted = ({ wanted }: Run, accountId: string): boolean => !wanted || wanted.has(accountId);
