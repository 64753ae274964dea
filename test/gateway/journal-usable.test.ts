import { spawnSync } from "node:child_process";
import { renameSync, writeFileSync } from "node:fs";
import { mkdtemp, readdir, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { beforeAll, expect, inject, test } from "vitest";
import { givenGateway, until } from "../support/gateway.ts";
import { hasten } from "../support/hasten.ts";
import { startGatewayProcess } from "../support/processes.ts";

beforeAll(hasten);

// Guarantee: a journal that could not keep a charge pages somebody before Redis is away, and mends itself.
test.concurrent("a gateway whose journal folder was replaced says so while Redis answers, stays ready, and recovers", async () => {
  const gateway = await givenGateway();
  const { journal } = gateway.config.store;
  const usable = async (): Promise<string | undefined> =>
    (await gateway.metric("tollgate_journal_usable "))[0]?.split(" ")[1];
  const linesWith = (text: string): number => gateway.logs.filter((line) => line.includes(text)).length;
  try {
    expect(await usable()).toBe("1");
    // In one tick: the gateway, in this process, makes the folder again whenever it finds none.
    renameSync(journal, `${journal}.aside`);
    writeFileSync(journal, "in its place");
    await until(() => linesWith("the journal cannot be kept: a file is where the folder should be") === 1);
    expect(await usable()).toBe("0");
    expect((await fetch(`${gateway.adminUrl}/readyz`)).status).toBe(200);

    await rm(journal);
    await until(() => linesWith("the journal can be used again") === 1);
    expect(await usable()).toBe("1");
    expect(linesWith("the journal cannot be kept")).toBe(1);
    expect((await readdir(journal)).filter((name) => name.endsWith(".ndjson"))).toHaveLength(1);
  } finally {
    await gateway.stop();
    await rm(`${journal}.aside`, { recursive: true });
    await rm(journal, { recursive: true });
  }
}, 150_000);

// Guarantee: a release whose folder is removed before its gateway has ended is served to its end, and keeps its charges.
test.concurrent("a gateway whose working directory was removed goes on, with its journal where it was", async () => {
  const cwd = await mkdtemp(join(tmpdir(), "tollgate-release-"));
  const gateway = await startGatewayProcess({
    redisUrl: inject("redisUrl"),
    upstreamUrl: "http://127.0.0.1:1",
    journal: "journal",
    cwd,
  });
  try {
    await rm(cwd, { recursive: true });
    const files = async (): Promise<string[]> => readdir(join(cwd, "journal")).catch(() => []);
    await until(
      async () => (await files()).some((name) => name.endsWith(".ndjson")),
      "the journal to be there again",
    );
    expect((await fetch(`${gateway.adminUrl}/livez`)).status).toBe(200);
  } finally {
    await gateway.stop();
    await rm(cwd, { recursive: true, force: true });
  }
});

test("a gateway that cannot use its journal folder does not start, and says which setting names it", async () => {
  const folder = await mkdtemp(join(tmpdir(), "tollgate-journal-file-"));
  const journal = join(folder, "journal");
  await writeFile(journal, "in its place");
  const env = { ...process.env, JOURNAL: journal, HOST: "127.0.0.1", PORT: "0", ADMIN_PORT: "0" };
  const { status, stderr } = spawnSync(process.execPath, ["src/main.ts"], {
    encoding: "utf8",
    env,
    timeout: 60_000,
  });
  expect(status).toBe(1);
  expect(stderr).toContain(`${journal} cannot be used: a file is where the folder should be`);
  expect(stderr).toContain("store.journal");
  await rm(folder, { recursive: true });
});
