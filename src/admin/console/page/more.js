export { showAudit } from "./views/audit.js";
export { showConfiguration } from "./views/configuration.js";
export { showSales, showTop } from "./views/reports.js";
export { showRunbook } from "./views/runbook.js";
export { showSearch } from "./views/search.js";
export { showOpenTasks, showTask } from "./views/task.js";
export { showTokens } from "./views/tokens.js";
export { showWebhook, showWebhooks } from "./views/webhooks.js";
