/** @import { Overview } from "./objects.d.ts" */
/** @import { Context, Made } from "./views.js" */
import { readOverview } from "./api.js";
import { el, failureNote, heading } from "./dom.js";
import { createLiveFigures } from "./live.js";
import { gatewaysTable, moneyPart, moneyTitle } from "./money.js";
import { ApiError } from "./transport.js";

const READ_EVERY_MS = 10_000;

/**
 * The money, all gateways, and this gateway's live figures.
 * @param {Context} context
 * @returns {Promise<Made>}
 */
export async function showOverview({ signal, again }) {
  const live = createLiveFigures(signal);
  const [money, gateways] = [el("div", {}), el("div", {})];
  /** @param {Overview} overview */
  const draw = (overview) => {
    live.knowLedger(overview.ledger);
    money.replaceChildren(...moneyPart(overview));
    gateways.replaceChildren(gatewaysTable(overview.gateways));
  };
  const read = () =>
    readOverview().then(
      (overview) => signal.aborted || draw(overview),
      (error) => {
        if (signal.aborted || isRefusal(error)) throw error;
        // Figures of before would be taken for those of now. The live ones need no Redis.
        money.replaceChildren(moneyTitle(), failureNote(error));
        gateways.replaceChildren();
      },
    );
  await read();
  const timer = setInterval(() => {
    // A table that somebody is in with the keyboard is not taken from under them.
    if (document.hidden || gateways.contains(document.activeElement)) return;
    read().catch(() => undefined);
  }, READ_EVERY_MS);
  signal.addEventListener("abort", () => clearInterval(timer));
  return {
    nodes: [
      heading("Overview", again),
      live.health,
      money,
      el(
        "div",
        { className: "heading" },
        el("h3", { className: "section" }, "This gateway, live"),
        live.choice,
        live.pause,
      ),
      ...live.nodes,
      gateways,
    ],
    shown: live.show,
  };
}

/** @param {unknown} error */
const isRefusal = (error) => error instanceof ApiError && error.status >= 400 && error.status < 500;
