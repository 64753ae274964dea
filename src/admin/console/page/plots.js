import { Component, createRef, hint, html } from "./dom.js";
import { DAY_SECONDS, dateOf, loadPlots } from "./requests.js";

/** @import UPlot from "./uplot.js" */

/** Loaded by the first plot that is shown. @type {typeof UPlot} */
let uPlot;

const HEIGHT = 210;
/** A page opened right after the start shows at least so much. */
const SPAN_MIN_SECONDS = 120;

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

/** @typedef {Record<string, readonly (number | null)[]>} Series */

/**
 * A plot over time with a legend that tells in words what the lines are now, or where the pointer is. What is drawn changes
 * only with another array of `seconds`.
 * @extends {Component<{ options: PlotOptions, seconds: number[], series: Series }, { at?: number | null | undefined }>}
 */
export class Plot extends Component {
  box = /** @type {{ current: HTMLElement }} */ (createRef());
  /** @type {UPlot | undefined} */
  plot;
  themed = matchMedia("(prefers-color-scheme: dark)");
  resized = new ResizeObserver(() => this.plot?.setSize(this.size()));

  size = () => ({ width: Math.max(240, this.box.current.clientWidth), height: HEIGHT });

  /** @returns {UPlot.AlignedData} */
  data() {
    const { options, seconds, series } = this.props;
    return [seconds, ...options.lines.map(({ name }) => [...(series[name] ?? seconds.map(() => null))])];
  }

  draw = () => {
    this.plot?.destroy();
    const pointed = (/** @type {number | null | undefined} */ at) => {
      if (at !== this.state.at) this.setState({ at });
    };
    const size = this.size();
    this.plot = new uPlot(
      { ...size, ...drawing(this.props.options, pointed) },
      this.data(),
      this.box.current,
    );
  };

  async componentDidMount() {
    uPlot ??= (await loadPlots()).default;
    // The view may have changed meanwhile.
    if (!this.box.current) return;
    this.draw();
    this.resized.observe(this.box.current);
    this.themed.addEventListener("change", this.draw);
  }

  /** @param {{ seconds: number[] }} before */
  componentDidUpdate({ seconds }) {
    if (seconds !== this.props.seconds) this.plot?.setData(this.data());
  }

  componentWillUnmount() {
    this.resized.disconnect();
    this.themed.removeEventListener("change", this.draw);
    this.plot?.destroy();
  }

  render() {
    const { options, series } = this.props;
    const { title, note, lines, format, days } = options;
    const { at } = this.state;
    const isLatest = at === null || at === undefined;
    /** @param {readonly (number | null)[]} line */
    const figureOf = (line) => (isLatest ? (days ? sumOf(line) : line.at(-1)) : line[at]);
    return html`<figure>
      <figcaption><h3>${title}</h3>${hint(note)}</figcaption>
      <ul class="legend">${lines.map(
        ({ name, label, color, dash }) =>
          html`<li>${swatch(color, dash)}${label} <output>${format(figureOf(series[name] ?? []))}</output></li>`,
      )}</ul>
      <div class="plot" role="img" ref=${this.box}
        aria-label=${`Plot: ${title}. The legend has the ${days ? "sums" : "latest values"}.`} />
    </figure>`;
  }
}

/** @param {PlotOptions} options @param {(index: number | null | undefined) => void} pointed @returns {Omit<UPlot.Options, "width" | "height">} */
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

/** @param {Line} line @returns {UPlot.Series} */
const seriesOf = ({ label, color, dash, fill }) => ({
  label,
  stroke: colorOf(`var(${color})`),
  width: 2,
  points: { show: false },
  ...(dash ? { dash } : {}),
  ...(fill ? { fill: colorOf(`color-mix(in srgb, var(${color}) 15%, transparent)`) } : {}),
});

/** @param {Line} line @returns {UPlot.Series} */
const barsOf = ({ color, dash }) => {
  // Dashed lines are in front of the others.
  const paths = uPlot.paths.bars?.({ size: dash ? [0.3, 40] : [0.7, 80] });
  return { width: 0, fill: colorOf(`var(${color})`), ...(paths ? { paths } : {}) };
};

/** @param {ArrayLike<number | null | undefined>} values */
const sumOf = (values) =>
  Array.from(values).reduce((/** @type {number} */ sum, value) => sum + (value ?? 0), 0);

/** Room for the first and the last bar. @param {number} min @param {number} max @returns {[number, number]} */
const wholeDays = (min, max) => [min - DAY_SECONDS / 2, max + DAY_SECONDS / 2];

/** A short piece of the line, so that it is known by its dashes too. @param {string} color @param {number[] | undefined} dash */
const swatch = (color, dash) =>
  html`<svg width="22" height="8" aria-hidden="true"><path d="M0 4h22" class="line"
    style=${{ stroke: `var(${color})` }} stroke-dasharray=${dash?.join(" ")} /></svg>`;

/** A colour of the style sheet as the canvas wants it, in the theme of the moment. @param {string} expression */
function colorOf(expression) {
  const probe = document.createElement("i");
  probe.style.color = expression;
  document.body.append(probe);
  const { color } = getComputedStyle(probe);
  probe.remove();
  return color;
}

/** @param {unknown} _ @param {(number | null)[]} splits */
const wholeDecades = (_, splits) =>
  splits.map((value) =>
    value !== null && Number.isInteger(Math.round(Math.log10(value) * 1e6) / 1e6) ? value : null,
  );

/** @param {number} seconds Unix @param {number} apart seconds from one to the next */
const clock = (seconds, apart) => new Date(seconds * 1000).toISOString().slice(11, apart < 60 ? 19 : 16);

/** Whole powers of ten around the data. @param {number | null} min @param {number | null} max @returns {[number, number]} */
function decades(min, max) {
  if (min === null || max === null || !(min > 0)) return [0.001, 1];
  const [low, high] = [Math.floor(Math.log10(min)), Math.ceil(Math.log10(max))];
  return [10 ** low, 10 ** Math.max(low + 1, high)];
}
