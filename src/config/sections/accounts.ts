import { type Static, Type } from "typebox";
import { ruled, section } from "../setting-types.ts";

const NAME = /^[A-Za-z0-9_.-]{1,64}$/;

const nameRule = (name: string): string | undefined =>
  NAME.test(name) ? undefined : "must be a name of 1 to 64 characters of A-Z, a-z, 0-9, _, . and -";

export const accountsSchema = section("Accounts.", {
  indexed_metadata: Type.Array(ruled(Type.String(), nameRule), {
    default: [],
    maxItems: 4,
    uniqueItems: true,
    description: "Names in the metadata of accounts by whose values GET /accounts finds them.",
  }),
});

export const toAccountsConfig = ({ indexed_metadata }: Static<typeof accountsSchema>) => ({
  indexedMetadata: indexed_metadata,
});
