import { Type } from "typebox";
import { adminOpenApi } from "./openapi.ts";
import { type Route, route } from "./route.ts";
import { accountRoutes } from "./routes/accounts.ts";
import { auditRoutes } from "./routes/audit.ts";
import { catalogRoutes } from "./routes/catalog.ts";
import { creditRoutes } from "./routes/credits.ts";
import { keyRoutes } from "./routes/keys.ts";
import { maintenanceRoutes } from "./routes/maintenance.ts";
import { searchRoutes } from "./routes/search.ts";
import { statementRoutes } from "./routes/statements.ts";
import { taskRoutes } from "./routes/tasks.ts";
import { todayRoutes } from "./routes/today.ts";
import { tokenRoutes } from "./routes/tokens.ts";
import { transactionRoutes } from "./routes/transactions.ts";
import { usageRoutes } from "./routes/usage.ts";
import { viewRoutes } from "./routes/views.ts";
import { webhookRoutes } from "./routes/webhooks.ts";

const openApiRoute = route("GET /openapi.json", {
  tag: "Configuration",
  scope: "any",
  name: "readOpenApi",
  summary: "Read this description",
  description: "As an OpenAPI 3.1 document.",
  answers: {
    200: {
      description: "This document.",
      schema: Type.Object({ openapi: Type.String({ examples: ["3.1.1"] }) }),
    },
  },
  async run() {
    document ??= adminOpenApi(ROUTES);
    return { status: 200, body: document };
  },
});
let document: object | undefined;

export const ROUTES: readonly Route[] = [
  ...accountRoutes,
  ...keyRoutes,
  ...transactionRoutes,
  ...creditRoutes,
  ...taskRoutes,
  ...usageRoutes,
  ...webhookRoutes,
  ...statementRoutes,
  ...catalogRoutes,
  ...tokenRoutes,
  ...auditRoutes,
  ...maintenanceRoutes,
  ...viewRoutes,
  ...searchRoutes,
  ...todayRoutes,
  openApiRoute,
];
