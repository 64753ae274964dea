import { adminOpenApi as documentOf } from "../src/admin/api/openapi.ts";
import { ROUTES } from "../src/admin/api/routes.ts";

export const adminOpenApi = {
  file: "docs/management.openapi.json",
  text: (): string => `${JSON.stringify(documentOf(ROUTES), null, 2)}\n`,
};
