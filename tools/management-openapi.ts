import { managementOpenApi as documentOf } from "../src/operator/manage/openapi.ts";
import { createRoutes } from "../src/operator/manage/routes.ts";
import type { Services } from "../src/operator/manage/services.ts";

/** The routes are described here, not called. */
const routes = createRoutes({} as Services);

export const managementOpenApi = {
  file: "docs/management.openapi.json",
  text: (): string => `${JSON.stringify(documentOf(routes), null, 2)}\n`,
};
