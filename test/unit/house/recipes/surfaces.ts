import { adminOpenApi } from "../../../../src/admin/api/openapi.ts";
import { accountRoutes } from "../../../../src/admin/api/routes/accounts.ts";
import { catalogRoutes } from "../../../../src/admin/api/routes/catalog.ts";
import { keyRoutes } from "../../../../src/admin/api/routes/keys.ts";
import { todayRoutes } from "../../../../src/admin/api/routes/today.ts";
import { ROUTES } from "../../../../src/admin/api/routes.ts";
import { pageFile } from "../../../../src/admin/console/console.ts";
import { openApiText } from "../../../../src/api/document.ts";
import { commandPath, commandsOf, tollgateProgram } from "../../../../src/commands/program.ts";
import { tiersSchema } from "../../../../src/config/sections/tiers.ts";
import type { TierLimits } from "../../../../src/domain/limits.ts";
import { ACCOUNT_FIELDS, KEY_FIELDS } from "../../../../src/records/records.ts";
import { packTiers } from "../../../../src/scripts/holds.ts";

/** All options of a command and of those below it, with underscores. */
function options(...words: string[]): string {
  const path = words.join(" ");
  const commands = commandsOf(tollgateProgram()).filter((one) =>
    `${commandPath(one)} `.startsWith(`${path} `),
  );
  return commands.flatMap((one) => one.options.map(({ long }) => long?.replaceAll("-", "_"))).join();
}

/** The surfaces that do not name a limit. */
export async function surfacesWithoutLimit(name: string): Promise<string[]> {
  const packed = packTiers({ standard: { [name]: 271 } as unknown as TierLimits });
  const texts = {
    settings: tiersSchema,
    customers: openApiText(),
    accounts: adminOpenApi(accountRoutes),
    keys: adminOpenApi(keyRoutes),
    tiers: adminOpenApi(catalogRoutes),
    use: adminOpenApi(todayRoutes),
    console: String((await pageFile(""))?.body),
    "account options": options("accounts"),
    "key options": options("keys"),
    "account record": [ACCOUNT_FIELDS],
    "key record": [KEY_FIELDS],
    scripts: packed.replace("271", name),
  };
  return Object.entries(texts)
    .filter(([, text]) => !JSON.stringify(text).includes(name))
    .map(([surface]) => surface);
}

/** Where an operation is: its route, the description, and its command with its options. */
export function surfacesOfOperation(name: string, path: string) {
  const command = commandsOf(tollgateProgram()).find((one) => commandPath(one) === path);
  return {
    scope: ROUTES.find((route) => route.name === name)?.scope,
    isDescribed: JSON.stringify(adminOpenApi(ROUTES)).includes(`"${name}"`),
    required: command?.options.filter(({ mandatory }) => mandatory).map(({ long }) => long),
    hasActor: command?.options.some(({ long }) => long === "--as"),
  };
}
