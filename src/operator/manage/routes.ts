import type { Route } from "./route.ts";
import { accountRoutes } from "./routes/accounts.ts";
import { catalogRoutes } from "./routes/catalog.ts";
import { keyRoutes } from "./routes/keys.ts";
import { tokenRoutes } from "./routes/tokens.ts";
import { transactionRoutes } from "./routes/transactions.ts";
import type { Services } from "./services.ts";

/** All paths of the management API, in the order of its description. */
export const createRoutes = (services: Services): readonly Route[] => [
  ...accountRoutes(services),
  ...keyRoutes(services),
  ...transactionRoutes(services),
  ...catalogRoutes(services),
  ...tokenRoutes(services),
];
