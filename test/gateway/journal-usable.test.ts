import { readdir, rename, rm, writeFile } from "node:fs/promises";
import { expect, test } from "vitest";
import { givenGateway, until } from "../support/gateway.ts";

// Guarantee: a journal that could not keep a charge pages somebody before Redis is away, and mends itself.
test("a gateway whose journal folder was replaced says so while Redis answers, stays ready, and recovers", async () => {
  const gateway = await givenGateway();
  const { journal } = gateway.config.store;
  const usable = async (): Promise<string | undefined> =>
    (await gateway.metric("tollgate_journal_usable "))[0]?.split(" ")[1];
  const said = (text: string): number => gateway.logs.filter((line) => line.includes(text)).length;
  try {
    expect(await usable()).toBe("1");
    await rename(journal, `${journal}.aside`);
    await writeFile(journal, "in its place");
    await until(() => said("the journal cannot be kept: a file is where the folder should be") === 1);
    expect(await usable()).toBe("0");
    expect((await fetch(`${gateway.adminUrl}/readyz`)).status).toBe(200);

    await rm(journal);
    await until(() => said("the journal can be used again") === 1);
    expect(await usable()).toBe("1");
    expect(said("the journal cannot be kept")).toBe(1);
    expect((await readdir(journal)).filter((name) => name.endsWith(".ndjson"))).toHaveLength(1);
  } finally {
    await gateway.stop();
    await rm(`${journal}.aside`, { recursive: true });
    await rm(journal, { recursive: true });
  }
}, 150_000);
