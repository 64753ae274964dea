/** Optional details of a ledger entry. Amounts of money are decimals such as 9.90, never floating-point numbers. */
export interface EntryDetails {
  /** Of a grant by package: its name and its price then. */
  package?: string | undefined;
  package_price?: string | undefined;
  package_currency?: string | undefined;
  /** Of a purchase: what the customer paid. */
  amount_paid?: string | undefined;
  currency?: string | undefined;
  /** Of a grant: an object of the operator's own. */
  metadata?: Readonly<Record<string, unknown>> | undefined;
  /** Of a reversal: the reference of the grant, what was asked for, and whether that was all that was left. */
  of?: string | undefined;
  requested?: number | undefined;
  all?: boolean | undefined;
  /** Of an adjustment: the request whose charge it corrects. */
  corrects?: string | undefined;
  /** Of a charge that did not cost a list price that is always in force: that price, and what made another of it. */
  list_price?: number | undefined;
  multiplier?: string | undefined;
  price_list?: string | undefined;
}

export const detailsOf = ({ details }: { details: string }): EntryDetails =>
  details === "" ? {} : (JSON.parse(details) as EntryDetails);

/** Empty for none. */
export const detailsText = (details: EntryDetails): string => {
  const text = JSON.stringify(details);
  return text === "{}" ? "" : text;
};
