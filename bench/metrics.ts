/** The metrics page of a gateway, as sums over the series of a name whose labels match. */
export async function readMetrics(adminUrl: string): Promise<(name: string, labels?: string) => number> {
  const page = await (await fetch(`${adminUrl}/metrics`)).text();
  const series = page.split("\n").filter((line) => line !== "" && !line.startsWith("#"));
  return (name, labels = "") =>
    series
      .filter((line) => line.startsWith(`${name} `) || (line.startsWith(`${name}{`) && line.includes(labels)))
      .reduce((sum, line) => sum + Number(line.slice(line.lastIndexOf(" ") + 1)), 0);
}
