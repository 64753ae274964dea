import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { expect, test } from "vitest";
import { withoutWebhooks } from "../../../bench/scenarios/task-ends.ts";
import { LUA_FOLDER } from "../../lua/headers.ts";

// Guarantee: what webhooks cost can be counted: the bench takes them out of the scripts as they are now.
test("the scripts have what the bench cuts out of them", () => {
  const home = mkdtempSync(join(tmpdir(), "tollgate-cuts-"));
  try {
    expect(withoutWebhooks(home, LUA_FOLDER)).toContain(home);
  } finally {
    rmSync(home, { recursive: true });
  }
});
