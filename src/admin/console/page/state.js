/** @import { Live } from "./objects.d.ts" */
import { readLive } from "./api.js";
import { byId } from "./dom.js";
import { age } from "./format.js";
import { findings } from "./health.js";
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
    showGateway(await readLive(LATER_THAN_ALL_MS));
  } catch (error) {
    if (error instanceof ApiError && error.status === 401) throw error;
    showTrouble(error);
  }
}

/** @param {Pick<Live, "gateway" | "health">} live */
export function showGateway({ gateway, health }) {
  const { host, pid, uptime_seconds, not_ready, primaries } = gateway;
  const state = byId("state");
  const away = primaries.filter(({ usable }) => !usable).map(({ name }) => name);
  const bad = findings({ gateway, health }).filter(({ level }) => level === "bad");
  state.className = bad.length > 0 ? "state bad" : "state good";
  state.title = primaries.map(({ name, usable }) => `Redis ${name}${usable ? "" : ", away"}`).join("\n");
  const where = `${host}, process ${pid}, up ${age(uptime_seconds)}`;
  const names = bad.map(({ name }) => name).filter((name) => name !== "Redis" || away.length === 0);
  const but = [
    ...(away.length > 0 ? [`Redis is away at ${away.join(", ")}`] : []),
    ...(names.length > 0 ? [`mend: ${names.join(", ")}`] : []),
  ];
  const ready = but.length > 0 ? `Ready, but ${but.join("; ")}` : "Ready";
  const text = `${not_ready ? `Not ready: ${not_ready}` : ready} · ${where}`;
  if (state.textContent !== text) state.textContent = text;
}

/** @param {unknown} error */
export function showTrouble(error) {
  const state = byId("state");
  state.className = "state bad";
  state.textContent = `No data: ${error instanceof Error ? error.message : error}`;
}
