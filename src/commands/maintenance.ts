import { Command } from "commander";
import { readingOfMaintenance, settingOfMaintenance } from "../admin/api/routes/maintenance.ts";
import { operationCommand } from "./operation-command.ts";

export const maintenanceCommand = (): Command =>
  new Command("maintenance")
    .description("maintenance: generations and uploads are refused with 503, polls and credits go on")
    .addCommand(onCommand())
    .addCommand(offCommand())
    .addCommand(showCommand());

const onCommand = (): Command =>
  operationCommand(settingOfMaintenance, {
    name: "on",
    about: "begin maintenance, in every gateway within two seconds",
    options: {
      "--retry-after <seconds>": "how long customers are told to wait; 60 when left out",
      "--message <text>": "what customers are told",
    },
    always: { on: true },
  });

const offCommand = (): Command =>
  operationCommand(settingOfMaintenance, { name: "off", about: "end maintenance", always: { on: false } });

const showCommand = (): Command =>
  operationCommand(readingOfMaintenance, { name: "show", about: "whether there is maintenance" });
