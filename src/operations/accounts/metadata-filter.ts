import { shown } from "../../domain/problems.ts";
import { metadataText } from "../../records/metadata-index.ts";
import { OperatorError } from "../../records/operator-error.ts";
import type { AccountObject } from "./operator-accounts.ts";

/** Values by the names under which accounts have them. */
export type MetadataFilter = Readonly<Record<string, string>>;

/** @param indexed names that may be asked for @throws OperatorError for another name */
export function requireIndexed(asked: MetadataFilter, indexed: readonly string[]): void {
  const other = Object.keys(asked).find((name) => !indexed.includes(name));
  if (other === undefined) return;
  const path = `metadata.${shown(other)}`;
  const known = indexed.length === 0 ? "none is" : `these are: ${indexed.join(", ")}`;
  throw new OperatorError(
    `${path} is not indexed, ${known}; add the name to accounts.indexed_metadata in the configuration, which takes at most 4`,
    "invalid",
    path,
  );
}

export const hasMetadata = ({ metadata }: AccountObject, asked: MetadataFilter): boolean =>
  Object.entries(asked).every(
    ([name, text]) =>
      metadata !== null && Object.hasOwn(metadata, name) && metadataText(metadata[name]) === text,
  );
