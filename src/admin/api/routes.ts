import { Type } from "typebox";
import { managementOpenApi } from "./openapi.ts";
import { type Route, route } from "./route.ts";
import { accountRoutes } from "./routes/accounts.ts";
import { auditRoutes } from "./routes/audit.ts";
import { catalogRoutes } from "./routes/catalog.ts";
import { creditRoutes } from "./routes/credits.ts";
import { keyRoutes } from "./routes/keys.ts";
import { searchRoutes } from "./routes/search.ts";
import { taskRoutes } from "./routes/tasks.ts";
import { todayRoutes } from "./routes/today.ts";
import { tokenRoutes } from "./routes/tokens.ts";
import { transactionRoutes } from "./routes/transactions.ts";
import { usageRoutes } from "./routes/usage.ts";
import { viewRoutes } from "./routes/views.ts";
import type { Services } from "./services.ts";

/** All paths of the management API, in the order of its description. */
export function createRoutes(services: Services): readonly Route[] {
  const routes: Route[] = [
    ...accountRoutes(services),
    ...keyRoutes(services),
    ...transactionRoutes(services),
    ...creditRoutes(services),
    ...taskRoutes(services),
    ...usageRoutes(services),
    ...catalogRoutes(services),
    ...tokenRoutes(services),
    ...auditRoutes(services),
    ...viewRoutes(services),
    ...searchRoutes(services),
    ...todayRoutes(services),
  ];
  routes.push(openApiRoute(routes));
  return routes;
}

/** @param routes all, itself among them once it is called */
function openApiRoute(routes: readonly Route[]): Route {
  let document: object | undefined;
  return route({
    method: "GET",
    path: "/openapi.json",
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
      document ??= managementOpenApi(routes);
      return { status: 200, body: document };
    },
  });
}
