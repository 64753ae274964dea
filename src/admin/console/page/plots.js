import { el, hint } from "./dom.js";
import uPlot from "./uplot.js";

const HEIGHT = 210;
/** A page opened right after the start shows at least so much. */
const SPAN_MIN_SECONDS = 120;

const DAY_SECONDS = 86_400;

/** @typedef {{ name: string, label: string, color: string, dash?: number[], fill?: boolean }} Line */

/**
 * @typedef {object} PlotOptions
 * @property {string} title
 * @property {string} note what is averaged over what
 * @property {Line[]} lines `color` names a custom property of the style sheet
 * @property {(value: number | null | undefined) => string} format
 * @property {(value: number) => string} [tick] the same for the axis
 * @property {boolean} [logarithmic]
 * @property {boolean} [whole] of things that are counted: the axis has no fractions
 * @property {boolean} [days] bars, one for each UTC day; the legend then has their sums
 */

/**
 * A plot over time with a legend that says in words what the lines say now, or where the pointer is.
 * @param {PlotOptions} options
 */
export function createPlot(options) {
  const { title, note, lines, format, days = false } = options;
  const values = lines.map(() => el("output", {}, "–"));
  const legend = el(
    "ul",
    { className: "legend" },
    ...lines.map(({ label, color, dash }, at) => el("li", {}, swatch(color, dash), `${label} `, values[at])),
  );
  const box = el("div", {
    className: "plot",
    role: "img",
    "aria-label": `Plot: ${title}. The legend has the ${days ? "sums" : "latest values"}.`,
  });
  const caption = el("figcaption", {}, el("h3", {}, title), hint(note));
  /** @type {uPlot | undefined} */
  let plot;
  /** @type {uPlot.AlignedData} */
  let data = [[], ...lines.map(() => [])];

  /** @param {number | null | undefined} index the latest, or the sum of days, where there is none */
  const showValues = (index) => {
    lines.forEach((_, at) => {
      const line = data[at + 1] ?? [];
      const whole = days ? sumOf(line) : line.at(-1);
      const text = format(index === null || index === undefined ? whole : line[index]);
      const output = values[at];
      if (output && output.textContent !== text) output.textContent = text;
    });
  };
  const size = () => ({ width: Math.max(240, box.clientWidth), height: HEIGHT });
  const draw = () => {
    plot?.destroy();
    plot = new uPlot({ ...size(), ...drawing(options, showValues) }, data, box);
  };
  const resized = new ResizeObserver(() => plot?.setSize(size()));
  const themed = matchMedia("(prefers-color-scheme: dark)");
  themed.addEventListener("change", draw);

  return {
    figure: el("figure", {}, caption, legend, box),
    /** To be called once the figure is in the page: it has no width before. */
    show() {
      draw();
      resized.observe(box);
    },
    /**
     * @param {number[]} seconds Unix
     * @param {Record<string, (number | null)[]>} series
     */
    update(seconds, series) {
      data = [seconds, ...lines.map(({ name }) => series[name] ?? seconds.map(() => null))];
      plot?.setData(data);
      showValues(plot?.cursor.idx);
    },
    destroy() {
      resized.disconnect();
      themed.removeEventListener("change", draw);
      plot?.destroy();
    },
  };
}

/**
 * How uPlot draws it, in the colours of the moment.
 * @param {PlotOptions} options
 * @param {(index: number | null | undefined) => void} pointed the pointer is there
 * @returns {Omit<uPlot.Options, "width" | "height">}
 */
function drawing(options, pointed) {
  const { lines, format, tick = format, logarithmic = false, whole = false, days = false } = options;
  const axis = { stroke: colorOf("var(--soft)"), ticks: { show: false } };
  const grid = { stroke: colorOf("var(--grid)"), width: 1 };
  const filter = logarithmic ? { filter: wholeDecades } : {};
  return {
    tzDate: (seconds) => uPlot.tzDate(new Date(seconds * 1000), "Etc/UTC"),
    legend: { show: false },
    cursor: { drag: { x: false, y: false }, points: { size: 6 }, ...(days ? {} : { sync: { key: "live" } }) },
    scales: {
      x: {
        range: (_, min, max) => (days ? wholeDays(min, max) : [Math.min(min, max - SPAN_MIN_SECONDS), max]),
      },
      y: logarithmic
        ? { distr: 3, range: (_, min, max) => decades(min, max) }
        : { range: (_, __, max) => [0, max > 0 ? max * 1.1 : 1] },
    },
    axes: [
      {
        ...axis,
        grid,
        size: 30,
        space: 70,
        ...(days ? { incrs: [1, 2, 7, 14].map((n) => n * DAY_SECONDS) } : {}),
        values: (_, splits, __, ___, seconds) =>
          splits.map((at) => (days ? dateOf(at).slice(5) : clock(at, seconds))),
      },
      {
        ...axis,
        ...filter,
        grid: { ...grid, ...filter },
        size: 58,
        values: (_, splits) =>
          splits.map((value) => (value === null || (whole && !Number.isInteger(value)) ? "" : tick(value))),
      },
    ],
    series: [{}, ...lines.map((line) => ({ ...seriesOf(line), ...(days ? barsOf(line) : {}) }))],
    hooks: { setCursor: [(u) => pointed(u.cursor.idx)] },
  };
}

/**
 * @param {Line} line
 * @returns {uPlot.Series}
 */
const seriesOf = ({ label, color, dash, fill }) => ({
  label,
  stroke: colorOf(`var(${color})`),
  width: 2,
  points: { show: false },
  ...(dash ? { dash } : {}),
  ...(fill ? { fill: colorOf(`color-mix(in srgb, var(${color}) 15%, transparent)`) } : {}),
});

/**
 * @param {Line} line
 * @returns {uPlot.Series}
 */
const barsOf = ({ color, dash }) => {
  // What is drawn dashed stands in front of the others.
  const paths = uPlot.paths.bars?.({ size: dash ? [0.3, 40] : [0.7, 80] });
  return { width: 0, fill: colorOf(`var(${color})`), ...(paths ? { paths } : {}) };
};

/** @param {ArrayLike<number | null | undefined>} values */
const sumOf = (values) =>
  Array.from(values).reduce((/** @type {number} */ sum, value) => sum + (value ?? 0), 0);

/** @param {number} seconds Unix @returns {string} */
export const dateOf = (seconds) => new Date(seconds * 1000).toISOString().slice(0, 10);

/**
 * Room for the first and the last bar.
 * @param {number} min
 * @param {number} max
 * @returns {[number, number]}
 */
const wholeDays = (min, max) => [min - DAY_SECONDS / 2, max + DAY_SECONDS / 2];

/** A short piece of the line, so that it is known by its dashes too. */
function swatch(/** @type {string} */ color, /** @type {number[] | undefined} */ dash) {
  const space = "http://www.w3.org/2000/svg";
  const svg = document.createElementNS(space, "svg");
  for (const [name, value] of Object.entries({ width: "22", height: "8", "aria-hidden": "true" }))
    svg.setAttribute(name, value);
  const line = document.createElementNS(space, "path");
  line.setAttribute("d", "M0 4h22");
  line.setAttribute("class", "line");
  line.style.stroke = `var(${color})`;
  if (dash) line.setAttribute("stroke-dasharray", dash.join(" "));
  svg.append(line);
  return svg;
}

/**
 * A colour of the style sheet as the canvas wants it, in the theme of the moment.
 * @param {string} expression
 */
function colorOf(expression) {
  const probe = el("i");
  probe.style.color = expression;
  document.body.append(probe);
  const { color } = getComputedStyle(probe);
  probe.remove();
  return color;
}

/**
 * @param {unknown} _
 * @param {(number | null)[]} splits
 */
const wholeDecades = (_, splits) =>
  splits.map((value) =>
    value !== null && Number.isInteger(Math.round(Math.log10(value) * 1e6) / 1e6) ? value : null,
  );

/**
 * @param {number} seconds Unix
 * @param {number} apart seconds from one to the next
 */
const clock = (seconds, apart) => new Date(seconds * 1000).toISOString().slice(11, apart < 60 ? 19 : 16);

/**
 * Whole powers of ten around the data.
 * @param {number | null} min
 * @param {number | null} max
 * @returns {[number, number]}
 */
function decades(min, max) {
  if (min === null || max === null || !(min > 0)) return [0.001, 1];
  const [low, high] = [Math.floor(Math.log10(min)), Math.ceil(Math.log10(max))];
  return [10 ** low, 10 ** Math.max(low + 1, high)];
}
