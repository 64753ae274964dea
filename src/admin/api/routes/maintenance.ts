import {
  type Maintenance as Found,
  readMaintenance,
  setMaintenance,
} from "../../../operations/store/maintenance.ts";
import { requireAllAccounts } from "../authorize.ts";
import { type Answer, operation } from "../route.ts";
import { Maintenance, NewMaintenance } from "../schemas.ts";

const answer = (found: Found | undefined): Answer => ({
  status: 200,
  body: { ...found, on: found !== undefined, retry_after: found?.retryAfterSeconds },
});

export const readingOfMaintenance = operation("GET /maintenance", {
  scope: "any",
  tag: "Configuration",
  name: "readMaintenance",
  summary: "Read whether there is maintenance",
  description: "As every gateway has it within two seconds.",
  answers: { 200: { description: "Maintenance.", schema: Maintenance } },
  operate: (nodes) => readMaintenance(nodes),
  answer,
});

export const settingOfMaintenance = operation("PUT /maintenance", {
  scope: "maintenance:write",
  name: "setMaintenance",
  summary: "Begin or end maintenance",
  description:
    "While it lasts, generations and uploads are 503 with `Retry-After` in every gateway, within two seconds; polls and credits go on.",
  body: NewMaintenance,
  answers: { 200: { description: "Maintenance as it is now.", schema: Maintenance } },
  operate(nodes, { body: { on, retry_after: retryAfterSeconds, message }, grantee, actor }) {
    requireAllAccounts(grantee);
    return setMaintenance(nodes, { on, retryAfterSeconds, message }, actor);
  },
  answer,
});

export const maintenanceRoutes = [readingOfMaintenance, settingOfMaintenance];
