import { rm } from "node:fs/promises";
import { beforeAll, describe, expect, test } from "vitest";
import { givenCopy } from "../../support/recipe.ts";

// Guarantee: a new operation is written once, for HTTP and the command line, in at most eight files.

const FILES_MAX = 8;

/** Prints where the operation of the recipe, `renameAccount`, is. */
const SURFACES = `
  import { adminOpenApi } from "./src/admin/api/openapi.ts";
  import { ROUTES } from "./src/admin/api/routes.ts";
  import { commandPath, commandsOf, tollgateProgram } from "./src/commands/program.ts";
  const described = JSON.stringify(adminOpenApi(ROUTES));
  const command = commandsOf(tollgateProgram()).find((one) => commandPath(one) === "accounts rename");
  console.log(JSON.stringify({
    http: ROUTES.some(({ name, scope }) => name === "renameAccount" && scope === "accounts:write"),
    described: described.includes('"renameAccount"'),
    options: command?.options.filter(({ mandatory }) => mandatory).map(({ long }) => long) ?? [],
    as: command?.options.some(({ long }) => long === "--as") ?? false,
  }));
`;

describe("a new operation", { timeout: 180_000 }, () => {
  let copy: Awaited<ReturnType<typeof givenCopy>>;
  const surfaces = async () => JSON.parse(await copy.evaluate(SURFACES));

  beforeAll(async () => {
    copy = await givenCopy("operation.patch", ["test/gateway/cli-operators.test.ts", "CHANGELOG.md"]);
    return () => rm(copy.folder, { recursive: true });
  });

  test("is nowhere before it is written", async () => {
    expect(await surfaces()).toEqual({ http: false, described: false, options: [], as: false });
  });

  test(`takes at most ${FILES_MAX} files, its test and the changelog among them, and both surfaces have it`, async () => {
    const files = await copy.files();
    expect(files.length, files.join("\n")).toBeLessThanOrEqual(FILES_MAX);
    expect(await copy.apply()).toBe("");
    expect(await surfaces()).toEqual({ http: true, described: true, options: ["--label"], as: true });
    expect(await copy.types()).toBe("");
  });
});
