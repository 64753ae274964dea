/** Months since January 1970; lua/include/month.lua has the same. */
export function monthOf(ms: number): number {
  const date = new Date(ms);
  return (date.getUTCFullYear() - 1970) * 12 + date.getUTCMonth();
}
