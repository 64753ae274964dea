/** @import { Live } from "./objects.d.ts" */
import { readLive } from "./api.js";
import { byId } from "./dom.js";
import { age } from "./format.js";
import { may, ownAccounts } from "./session.js";
import { ApiError } from "./transport.js";

/** No sample is later: the gateway is asked for without its samples. */
const LATER_THAN_ALL_MS = 1e14;

/** Says at the top whether this gateway is ready. */
export async function showState() {
  if (!may("usage:read") || ownAccounts() !== null) {
    byId("state").textContent = "";
    return;
  }
  try {
    showGateway((await readLive(LATER_THAN_ALL_MS)).gateway);
  } catch (error) {
    if (error instanceof ApiError && error.status === 401) throw error;
    showTrouble(error);
  }
}

/** @param {Live["gateway"]} gateway */
export function showGateway({ host, pid, uptime_seconds, not_ready, primaries }) {
  const state = byId("state");
  const away = primaries.filter(({ usable }) => !usable).map(({ name }) => name);
  state.className = not_ready || away.length > 0 ? "state bad" : "state good";
  state.title = primaries.map(({ name, usable }) => `Redis ${name}${usable ? "" : ", away"}`).join("\n");
  const where = `${host}, process ${pid}, up ${age(uptime_seconds)}`;
  const ready = away.length > 0 ? `Ready, but Redis is away at ${away.join(", ")}` : "Ready";
  const text = `${not_ready ? `Not ready: ${not_ready}` : ready} · ${where}`;
  if (state.textContent !== text) state.textContent = text;
}

/** @param {unknown} error */
export function showTrouble(error) {
  const state = byId("state");
  state.className = "state bad";
  state.textContent = `No data: ${error instanceof Error ? error.message : error}`;
}
