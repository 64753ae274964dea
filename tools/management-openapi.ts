import { managementOpenApi as documentOf } from "../src/admin/api/openapi.ts";
import { createRoutes } from "../src/admin/api/routes.ts";
import type { Services } from "../src/admin/api/services.ts";

/** The routes are described here, not called. */
const routes = createRoutes({} as Services);

export const managementOpenApi = {
  file: "docs/management.openapi.json",
  text: (): string => `${JSON.stringify(documentOf(routes), null, 2)}\n`,
};
