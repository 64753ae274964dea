import { readingOfMaintenance, settingOfMaintenance } from "../admin/api/routes/maintenance.ts";
import { operationCommand } from "./operation-command.ts";
import { group } from "./options.ts";

export const maintenanceCommand = group(
  "maintenance",
  "maintenance: generations and uploads are refused with 503, polls and credits go on",
  [
    operationCommand(settingOfMaintenance, {
      name: "on",
      about: "begin maintenance, in every gateway within two seconds",
      options: {
        "--retry-after <seconds>": "how long customers are told to wait; 60 when left out",
        "--message <text>": "what customers are told",
      },
      always: { on: true },
    }),
    operationCommand(settingOfMaintenance, { name: "off", about: "end maintenance", always: { on: false } }),
    operationCommand(readingOfMaintenance, { name: "show", about: "whether there is maintenance" }),
  ],
);
