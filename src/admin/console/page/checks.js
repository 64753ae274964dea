import { readHealth } from "./api.js";
import { badge, Component, failureNote, html, link, marked } from "./dom.js";
import { capitalized, count, momentText } from "./format.js";
import { hrefTo } from "./location.js";
import { table } from "./table.js";

/** @typedef {Health["checks"][number]} Check */

const WORDS_OF_STATUS = { ok: "good", warn: "look", fail: "mend" };

/** Where the documentation says what to do. @param {string} runbook a page of it, or a section */
export const runbookLink = (runbook, text = "what to do") =>
  link(hrefTo(["runbook", ...runbook.replace(/^.*\//, "").split("#")]), text);

/** Doctor's checks as this gateway sees them. @extends {Component<{}, { health?: Health, error?: unknown }>} */
export class Checks extends Component {
  async componentDidMount() {
    try {
      this.setState({ health: await readHealth() });
    } catch (error) {
      this.setState({ error });
    }
  }

  render() {
    const { health, error } = this.state;
    if (error !== undefined) return failureNote(error);
    if (health === undefined) return undefined;
    const { checks, checked_at } = health;
    const worse = checks.filter(({ status }) => status !== "ok");
    const good = checks.filter(({ status }) => status === "ok");
    return [
      worse.length > 0 && checksTable("Checks that found something", worse, "worse-by"),
      html`<details>
        <summary>${count(good.length)} of ${count(checks.length)} checks of this gateway found all good at ${momentText(checked_at)}</summary>
        ${checksTable("Checks", good, "good-by")}
      </details>`,
    ];
  }
}

/** @param {string} caption @param {Check[]} checks @param {string} sortedAs */
const checksTable = (caption, checks, sortedAs) =>
  table(
    caption,
    [
      { title: "Check", header: true, of: (one) => one.name },
      { title: "State", of: (one) => WORDS_OF_STATUS[one.status], as: badge },
      { title: "Found", wide: true, cell: wordsOfCheck },
      { title: "Runbook", cell: (one) => runbookLink(one.runbook) },
    ],
    checks,
    "There are none.",
    sortedAs,
  );

/** @param {Check} check */
const wordsOfCheck = ({ message, advice }) =>
  marked(capitalized([message, advice].filter(Boolean).join(": ").replace(/\.*$/, ".")));
