import { Account } from "./account-schemas.ts";
import { AuditRecord } from "./audit-schemas.ts";
import { Package, Price, Tier, Tiers } from "./catalog-schemas.ts";
import { Key } from "./key-schemas.ts";
import { Problem } from "./problem-schemas.ts";
import { Release, Task } from "./task-schemas.ts";
import { Token, WhoAmI } from "./token-schemas.ts";
import { Transaction } from "./transaction-schemas.ts";
import { Usage, UsageRow } from "./usage-schemas.ts";

/** Schemas that the description names; all others stand where they are used. */
export const NAMED = {
  Account,
  Key,
  Transaction,
  Task,
  Release,
  Token,
  WhoAmI,
  AuditRecord,
  Package,
  Price,
  Tier,
  Tiers,
  Usage,
  UsageRow,
  Problem,
};
