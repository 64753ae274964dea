/** @import { Overview } from "./objects.d.ts" */
/** @import { Context, Made } from "./views.js" */
import { readOverview } from "./api.js";
import { el, heading } from "./dom.js";
import { createLiveFigures } from "./live.js";
import { gatewaysTable, moneyPart } from "./money.js";

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
    money.replaceChildren(...moneyPart(overview));
    gateways.replaceChildren(gatewaysTable(overview.gateways));
  };
  draw(await readOverview());
  const timer = setInterval(() => {
    // A table that somebody is in with the keyboard is not taken from under them.
    if (document.hidden || gateways.contains(document.activeElement)) return;
    readOverview().then(
      (overview) => signal.aborted || draw(overview),
      // The live figures say at the top that nothing answers.
      () => undefined,
    );
  }, READ_EVERY_MS);
  signal.addEventListener("abort", () => clearInterval(timer));
  return {
    nodes: [
      heading("Overview", again),
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
