import { code, heading, html, link, note } from "../dom.js";
import { hrefTo } from "../location.js";
import { viewRequests } from "../requests.js";

/** @param {string} title @returns {string} as a link names a heading */
const anchorOf = (title) =>
  title
    .toLowerCase()
    .replaceAll(/[^\w\s-]/g, "")
    .trim()
    .replaceAll(/\s/g, "-");

const HEADING = /^(#+) (.+)$/;
/** Code between fences, or lines up to an empty one. */
const BLOCKS = /^```[\s\S]*?^```$|^(?!```).+(?:\n(?!```).+)*/gm;
const INLINE = /(`[^`]+`|\*\*[^*]+\*\*|\[[^\]]+\]\([^)]+\))/;
const ITEM = /^(?:[-*]|\d+\.) /;

/** A page of docs/operations, or a section of it, as health and alerts name it. @param {Context} context @returns {Promise<Content>} */
export async function showRunbook({ place }) {
  const [page = "", anchor = ""] = place.args;
  const text = await viewRequests.runbook(place).text;
  const section = sectionOf(text, anchor);
  const [, , title = page] = HEADING.exec(section.split("\n")[0] ?? "") ?? [];
  const whole = link(hrefTo(["runbook", page]), "the whole page");
  return [
    heading(title),
    anchor !== "" && section === text && note(`This page has no section ${anchor}.`),
    html`<div class="runbook">${blocksOf(section, page).slice(1)}</div>`,
    section !== text && html`<p class="hint">A section of docs/operations/${page}: ${whole}.</p>`,
  ];
}

/** From its heading to the next one of its level; the whole page where there is none. @param {string} text @param {string} anchor */
function sectionOf(text, anchor) {
  const lines = text.split("\n");
  const levels = lines.map((line) => HEADING.exec(line));
  const from = levels.findIndex((found) => found !== null && anchorOf(found[2] ?? "") === anchor);
  if (from === -1) return text;
  const depth = levels[from]?.[1]?.length ?? 0;
  const length = levels.slice(from + 1).findIndex((found) => found && (found[1]?.length ?? 0) <= depth);
  return lines.slice(from, length === -1 ? undefined : from + 1 + length).join("\n");
}

/** @param {string} markdown @param {string} page */
const blocksOf = (markdown, page) => (markdown.match(BLOCKS) ?? []).map((block) => blockOf(block, page));

/** @param {string} block @param {string} page */
function blockOf(block, page) {
  if (block.startsWith("```"))
    return html`<pre tabindex="0">${block.split("\n").slice(1, -1).join("\n")}</pre>`;
  if (block.startsWith("|")) return html`<pre tabindex="0">${block}</pre>`;
  const [, , title] = HEADING.exec(block.split("\n")[0] ?? "") ?? [];
  if (title) return html`<h3 class="section">${title}</h3>`;
  if (!ITEM.test(block)) return html`<p>${inline(block, page)}</p>`;
  const items = block.split(/\n(?=(?:[-*]|\d+\.) )/);
  return html`<ul>${items.map((item) => html`<li>${inline(item.replace(ITEM, ""), page)}</li>`)}</ul>`;
}

/** @param {string} text @param {string} page */
const inline = (text, page) =>
  text.split(INLINE).map((part) => {
    if (part.startsWith("`")) return code(part.slice(1, -1));
    if (part.startsWith("**")) return html`<strong>${part.slice(2, -2)}</strong>`;
    const [, words, target = ""] = /^\[([^\]]+)\]\(([^)]+)\)$/.exec(part) ?? [];
    if (words === undefined) return part;
    const [file, section = ""] = target.split("#");
    return /^([\w-]+\.md)?$/.test(file ?? "") ? link(runbookHref(file || page, section), words) : words;
  });

/** @param {string} page @param {string} section */
const runbookHref = (page, section) => hrefTo(section ? ["runbook", page, section] : ["runbook", page]);
