import { existsSync } from "node:fs";
import { mkdir, readFile } from "node:fs/promises";
import { join } from "node:path";
import { type Browser, chromium, type Page } from "playwright-core";
import { expect } from "vitest";
import type { TestGateway } from "../support/gateway.ts";

const CHROMIUM = process.env.CHROMIUM || "/usr/bin/chromium";
export const TOKEN = "correct-horse-battery";

/** True if there is a browser to test with. */
export const hasChromium = existsSync(CHROMIUM);
if (!hasChromium) {
  console.log(
    `Skipped: no Chromium at ${CHROMIUM}. Install one (apt-get install chromium), or set CHROMIUM to where it is.`,
  );
}

export function openBrowser(): Promise<Browser> {
  const asRoot = process.getuid?.() === 0 ? ["--no-sandbox"] : [];
  return chromium.launch({ executablePath: CHROMIUM, args: asRoot });
}

export type Operator = Awaited<ReturnType<typeof givenOperator>>;

/** An operator in front of a gateway's console: a window of its own, and what the page complained of. */
export async function givenOperator(
  browser: Browser,
  gateway: Pick<TestGateway, "adminUrl">,
  size = { width: 1300, height: 900 },
) {
  const context = await browser.newContext({ viewport: size });
  const page = await context.newPage();
  page.setDefaultTimeout(30_000);
  /** Complaints of the page, and its requests elsewhere. An answer of 4xx is none of the page's faults. */
  const complaints: string[] = [];
  page.on("pageerror", (error) => complaints.push(error.message));
  page.on("console", (line) => {
    if (line.type() === "error" && !/status of 4\d\d/.test(line.text())) complaints.push(line.text());
  });
  page.on("request", (request) => {
    const isOwn = request.url().startsWith(gateway.adminUrl) || request.url().startsWith("blob:");
    if (!isOwn) complaints.push(request.url());
  });
  /** Until the page shows what its address names. */
  const settled = () => page.locator("#view:not([aria-busy])").waitFor();
  const view = (place: string): Promise<unknown> => page.goto(`${gateway.adminUrl}/console/#${place}`);
  return {
    page,
    complaints,
    view,
    /** Opens a view and waits until it is there. */
    async open(place: string): Promise<void> {
      await view(place);
      await page.locator(`#view[data-place="${place.split("?")[0]}"]:not([aria-busy])`).waitFor();
    },
    async signIn(place = "overview", token = TOKEN): Promise<void> {
      await view(place);
      await page.getByRole("textbox", { name: "Token" }).fill(token);
      await page.keyboard.press("Enter");
      await settled();
      await page.locator("#view-title").waitFor();
    },
    result: () => page.locator("#result"),
    tile: (label: string) => page.locator(".tile", { hasText: label }).locator("dd").first().textContent(),
    focused: () => page.evaluate<string>("document.activeElement.textContent.trim()"),
    /** A request that is pending then is no fault of a route that answers in the gateway's place. */
    async close(): Promise<void> {
      await page.unrouteAll({ behavior: "ignoreErrors" });
      await context.close();
    },
  };
}

/** Waits until all plots of the page have lines or bars. */
export const plotsDrawn = (page: Page, plots: number): Promise<void> =>
  expect.poll(() => page.evaluate(plotsDrawnIn(plots)), { timeout: 30_000, interval: 200 }).toBe(true);

/** True once each plot has lines: colours, where its axes and its grid are grey. */
const plotsDrawnIn = (plots: number) => `[...document.querySelectorAll(".plot")].length === ${plots} &&
  [...document.querySelectorAll(".plot canvas")].every((canvas) => {
    const { data } = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
    for (let at = 0; at < data.length; at += 4) {
      const colour = data.slice(at, at + 3);
      if (data[at + 3] === 255 && Math.max(...colour) - Math.min(...colour) > 60) return true;
    }
    return false;
  })`;

/** With `AXE=FILE` of axe-core each view is checked by it, too. */
const AXE = process.env.AXE;

/** Findings of axe-core on the current page; none without `AXE`. */
export async function axeFindings(page: Page): Promise<string[]> {
  if (!AXE) return [];
  const session = await page.context().newCDPSession(page);
  await session.send("Page.setBypassCSP", { enabled: true });
  await page.evaluate(await readFile(AXE, "utf8"));
  await session.detach();
  return page.evaluate<string[]>(
    `axe.run().then(({ violations }) => violations.map((one) => one.id + " " + one.nodes.map((node) => node.html.slice(0, 200)).join(" | ")))`,
  );
}

/** With `CONSOLE_LOOK=DIRECTORY` pictures of what is looked at are kept there. */
export const LOOK = process.env.CONSOLE_LOOK;

/** The current view fits the window, can be read and has named controls. @param name of the picture */
export async function expectLegible(page: Page, name: string): Promise<void> {
  const { width } = page.viewportSize()!;
  expect(await page.evaluate("document.documentElement.scrollWidth"), name).toBeLessThanOrEqual(width);
  if (width < 640) expect(await page.evaluate(CUT_OFF), name).toEqual([]);
  expect(await page.evaluate<string[]>(FAINT_TEXT), name).toEqual([]);
  expect(await page.evaluate<string[]>(NAMELESS), name).toEqual([]);
  expect(await axeFindings(page), name).toEqual([]);
  if (LOOK === undefined) return;
  await mkdir(LOOK, { recursive: true });
  const isDialog = (await page.getByRole("dialog").count()) > 0;
  await page.screenshot({ path: join(LOOK, `${name.replaceAll(/\W/g, "-")}.png`), fullPage: !isDialog });
}

/** Checks `expectLegible` wide and on a phone, light and dark; leaves the page wide and light. */
export async function expectLegibleAnywhere(page: Page, name: string): Promise<void> {
  for (const [width, colorScheme] of [
    [390, "dark"],
    [390, "light"],
    [1280, "dark"],
    [1280, "light"],
  ] as const) {
    await page.setViewportSize({ width, height: 900 });
    await page.emulateMedia({ colorScheme });
    await expectLegible(page, `${name}-${width}-${colorScheme}`);
  }
}

/** Texts whose contrast with what is behind them is below 4.5 to 1 (WCAG 2.2, 1.4.3), told with their ratio. */
export const FAINT_TEXT = `(() => {
  const canvas = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
  const rgb = (colour) => {
    canvas.clearRect(0, 0, 1, 1);
    canvas.fillStyle = colour;
    canvas.fillRect(0, 0, 1, 1);
    return [...canvas.getImageData(0, 0, 1, 1).data];
  };
  const light = ([r, g, b]) => {
    const part = (value) => (value / 255 <= 0.04045 ? value / 255 / 12.92 : ((value / 255 + 0.055) / 1.055) ** 2.4);
    return 0.2126 * part(r) + 0.7152 * part(g) + 0.0722 * part(b);
  };
  const behind = (element) => {
    for (let at = element; at; at = at.parentElement) {
      const colour = rgb(getComputedStyle(at).backgroundColor);
      if (colour[3] === 255) return colour;
    }
    return [255, 255, 255, 255];
  };
  const faint = [];
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  let seen = 0;
  while (walker.nextNode()) {
    const text = walker.currentNode.textContent.trim();
    const element = walker.currentNode.parentElement;
    if (!text || !element.checkVisibility() || element.closest(":disabled, script, noscript")) continue;
    seen++;
    const levels = [light(rgb(getComputedStyle(element).color)), light(behind(element))].sort((a, b) => b - a);
    const ratio = (levels[0] + 0.05) / (levels[1] + 0.05);
    if (ratio < 4.5) faint.push(text + " " + ratio.toFixed(2));
  }
  return seen > 10 ? faint : ["hardly any text was seen"];
})()`;

/** Controls that a screen reader could not name: without a label, a text or an aria-label; and ids that are there twice. */
export const NAMELESS = `(() => {
  const nameless = [...document.querySelectorAll("a, button, input, select, summary, meter, [role=region], [role=img]")]
    .filter((one) => one.checkVisibility() && one.type !== "hidden")
    .filter((one) => !(one.getAttribute("aria-label") ?? one.labels?.[0]?.textContent ?? one.textContent ?? "").trim())
    .map((one) => one.outerHTML.slice(0, 120));
  const ids = [...document.querySelectorAll("[id]")].map((one) => one.id);
  return [...nameless, ...ids.filter((id, at) => ids.indexOf(id) !== at).map((id) => "twice: " + id)];
})()`;

/** Cells of tables that are not wholly within the window: one would have to scroll sideways for them. */
export const CUT_OFF = `[...document.querySelectorAll("td, tbody th")]
  .filter((cell) => cell.checkVisibility())
  .filter((cell) => {
    const { left, right } = cell.getBoundingClientRect();
    return left < 0 || right > innerWidth || cell.scrollWidth > cell.clientWidth + 1;
  })
  .map((cell) => cell.textContent.slice(0, 60))`;

/** Questions and errors of a form that its buttons or the edge of the dialog cover. */
export const COVERED = `(() => {
  const buttons = document.querySelector("dialog[open] .buttons");
  return [...document.querySelectorAll("#dialog-doubt, #dialog-error")]
    .filter((one) => one.checkVisibility() && one.textContent)
    .filter((one) => one.getBoundingClientRect().bottom > buttons.getBoundingClientRect().top)
    .map((one) => one.textContent);
})()`;
