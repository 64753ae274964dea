import type { Page } from "playwright-core";
import { LARGE, LARGE_REFERENCE, type Stage } from "./console-customers.ts";
import { TOKEN } from "./console-stage.ts";

/** A place, and the actions there. */
export interface Scene {
  place: string;
  act?: (page: Page) => Promise<unknown>;
}

const press = (page: Page, name: string) => page.getByRole("button", { name, exact: true }).click();
const pressThen =
  (name: string, act?: (page: Page) => Promise<unknown>) =>
  async (page: Page): Promise<void> => {
    await press(page, name);
    await page.getByRole("dialog").waitFor();
    await act?.(page);
  };
const pressFirst =
  (name: RegExp) =>
  async (page: Page): Promise<void> => {
    await page.getByRole("button", { name }).first().click();
    await page.getByRole("dialog").waitFor();
  };
const fill = (page: Page, label: string, value: string) =>
  page.getByRole("dialog").getByLabel(label, { exact: true }).fill(value);

/** Views as their address names them. */
export const viewScenes = ({
  completed,
  refunded,
  failed,
  open,
  cappedKeyId,
  endpointId,
}: Stage): Record<string, Scene> => ({
  overview: { place: "overview" },
  accounts: { place: "accounts" },
  "accounts-suspended": { place: "accounts?status=suspended" },
  account: { place: "account/acme" },
  "account-large": { place: `account/${LARGE}` },
  "account-suspended": { place: "account/pixelworks" },
  "account-closed": { place: "account/old-times" },
  transactions: { place: "account/northwind/transactions" },
  "transactions-filtered": { place: "account/acme/transactions?kind=refund&sort=-credits" },
  "transactions-large": { place: `account/${LARGE}/transactions` },
  tasks: { place: "account/acme/tasks" },
  refusals: { place: "account/acme/refusals" },
  timeline: { place: "account/acme/timeline" },
  webhooks: { place: "account/acme/webhooks" },
  webhook: { place: `webhook/acme/${endpointId}` },
  key: { place: `key/acme/${cappedKeyId}` },
  task: { place: `task/${completed}` },
  "task-refunded": { place: `task/${refunded}` },
  "task-failed": { place: `task/${failed}` },
  "task-open": { place: `task/${open}` },
  "running-out": { place: "accounts?order=days_left" },
  top: { place: "top" },
  "top-refused": { place: "top?by=refusals" },
  sales: { place: "sales" },
  keys: { place: "keys" },
  "open-tasks": { place: "tasks?older=0" },
  configuration: { place: "configuration" },
  audit: { place: "audit" },
  "audit-account": { place: `audit?account_id=${LARGE}` },
  tokens: { place: "tokens" },
  runbook: { place: "runbook/alerts-redis.md/tollgatestoredegraded" },
  search: { place: "search?q=Pixel" },
  "search-nothing": { place: "search?q=nothing-of-the-kind" },
  missing: { place: "account/nobody-at-all" },
});

/** Forms and questions of webhooks. */
const webhookScenes = ({ endpointId }: Stage): Record<string, Scene> => ({
  "register-endpoint": { place: "account/acme/webhooks", act: pressThen("Register endpoint …") },
  "edit-endpoint": { place: `webhook/acme/${endpointId}`, act: pressThen("Edit …") },
  "test-message": { place: `webhook/acme/${endpointId}`, act: pressThen("Send test …") },
  "rotate-secret": { place: `webhook/acme/${endpointId}`, act: pressThen("Rotate secret …") },
  "disable-endpoint": { place: `webhook/acme/${endpointId}`, act: pressThen("Disable …") },
  "delete-endpoint": { place: `webhook/acme/${endpointId}`, act: pressThen("Delete …") },
  redeliver: { place: `webhook/acme/${endpointId}`, act: pressFirst(/^Redeliver/) },
});

/** Forms and questions, filled in up to what they ask last. */
export const formScenes = (stage: Stage): Record<string, Scene> => ({
  ...formsOf(stage),
  maintenance: { place: "overview", act: pressThen("Maintenance …") },
  ...webhookScenes(stage),
});

const formsOf = ({ completed, open, cappedKeyId }: Stage): Record<string, Scene> => ({
  "create-account": { place: "accounts", act: pressThen("Create account …") },
  "edit-account": { place: `account/${LARGE}`, act: pressThen("Edit …") },
  suspend: { place: "account/acme", act: pressThen("Suspend …") },
  grant: {
    place: "account/northwind",
    act: pressThen("Grant credits …", (page) => fill(page, "Credits", "500")),
  },
  "grant-again": {
    place: `account/${LARGE}`,
    act: pressThen("Grant credits …", async (page) => {
      await fill(page, "Credits", "12345678901");
      await fill(page, "Reference", LARGE_REFERENCE);
      await press(page, "Grant");
      await page.getByText("Are you sure?").waitFor();
    }),
  },
  "adjust-again": {
    place: "account/northwind",
    act: pressThen("Adjust balance …", async (page) => {
      await fill(page, "Change in credits", "-3000");
      await fill(page, "Reason", "charged back by the bank");
      await fill(page, "Reference", "ticket 3001");
      await press(page, "Adjust");
      await page.getByText("Are you sure?").waitFor();
    }),
  },
  "adjust-wrong": {
    place: "account/northwind",
    act: pressThen("Adjust balance …", async (page) => {
      await fill(page, "Change in credits", "7.5");
      await press(page, "Adjust");
    }),
  },
  refund: { place: `task/${completed}`, act: pressThen("Refund …") },
  release: { place: `task/${open}`, act: pressThen("Release …") },
  "create-key": { place: "account/acme", act: pressThen("Create key …") },
  "edit-key": { place: `key/acme/${cappedKeyId}`, act: pressThen("Edit …") },
  rotate: { place: `key/acme/${cappedKeyId}`, act: pressThen("Rotate …") },
  replace: { place: `key/acme/${cappedKeyId}`, act: pressThen("It leaked: replace it now …") },
  "leaked-key": { place: "accounts", act: pressThen("A key has leaked …") },
  undo: { place: `account/${LARGE}/transactions?kind=purchase`, act: pressFirst(/^Undo/) },
  close: { place: "account/acme", act: pressThen("Close …") },
  activate: { place: "account/pixelworks", act: pressThen("Activate …") },
  "revoke-token": { place: "tokens", act: pressFirst(/^Revoke token/) },
  "found-as-one-types": {
    place: "accounts",
    async act(page) {
      await page.getByRole("searchbox", { name: "Search" }).fill("film");
      await page.locator("#found a").first().waitFor();
    },
  },
  revoke: { place: `key/acme/${cappedKeyId}`, act: pressThen("Revoke …") },
  "create-token": { place: "tokens", act: pressThen("Create token …") },
  "token-shown": {
    place: "tokens",
    act: pressThen("Create token …", async (page) => {
      await fill(page, "Label", "looked at");
      await page.getByRole("dialog").getByLabel("usage:read").check();
      await press(page, "Create it");
      await page.getByText("is shown this once").waitFor();
    }),
  },
  "token-lost": {
    place: "account/northwind",
    act: pressThen("Grant credits …", async (page) => {
      await fill(page, "Credits", "5");
      await fill(page, "Reference", "ticket 4");
      await page.evaluate(() => sessionStorage.setItem("tollgate-admin-token", "ended-ended-ended"));
      await press(page, "Grant");
      await page.getByText("what you typed is kept").first().waitFor();
      await page.evaluate((of) => sessionStorage.setItem("tollgate-admin-token", of), TOKEN);
    }),
  },
});
