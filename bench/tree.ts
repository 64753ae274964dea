import { join, resolve } from "node:path";
import { pathToFileURL } from "node:url";
import type { issueKey } from "../src/store/accounts.ts";
import type { partitionOf } from "../src/store/names.ts";

/** A source tree whose gateway is measured: keys are made by its own code, so that its own encoding is read. */
export interface Tree {
  /** As tables name it. */
  name: string;
  root: string;
  issueKey: typeof issueKey;
  partitionOf: typeof partitionOf;
}

/** Loads what the benchmark needs of a checkout; its `node_modules` must be there. */
export async function openTree(name: string, folder: string): Promise<Tree> {
  const root = resolve(folder);
  const load = (file: string) => import(pathToFileURL(join(root, "src/store", file)).href);
  const [accounts, names] = await Promise.all([load("accounts.ts"), load("names.ts")]);
  return { name, root, issueKey: accounts.issueKey, partitionOf: names.partitionOf };
}
