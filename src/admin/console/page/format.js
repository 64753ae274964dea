const whole = new Intl.NumberFormat("en");

/** @param {string} text of a number, whose minus sign is a hyphen */
const withMinus = (text) => text.replace("-", "−");

/** @param {number | null | undefined} number */
export const count = (number) =>
  number === null || number === undefined ? "–" : withMinus(whole.format(number));

/** @param {number} number @param {string} one @param {string} [more] such as `1 key`, `2 keys` */
export const plural = (number, one, more = `${one}s`) => `${count(number)} ${number === 1 ? one : more}`;

const compact = new Intl.NumberFormat("en", { notation: "compact", maximumFractionDigits: 1 });

/** @param {number} number for an axis, which has little room: 25,000, but 2.5M */
export const shortCount = (number) =>
  Math.abs(number) < 100_000 ? count(number) : withMinus(compact.format(number));

/** @param {string} text such as an error's, as a sentence begins; a parameter's name stays as it is */
export const capitalized = (text) => text.replace(/^[a-z](?=[a-z]* )/, (letter) => letter.toUpperCase());

/** @param {number} amount with its sign */
export const signed = (amount) => (amount > 0 ? `+${count(amount)}` : count(amount));

/** @param {number | null | undefined} number of something that is measured in parts */
export const wholeCount = (number) =>
  number === null || number === undefined ? "–" : count(Math.round(number));

/** @param {number | null | undefined} perSecond */
export function rate(perSecond) {
  if (perSecond === null || perSecond === undefined) return "–";
  return perSecond === 0 || perSecond >= 100
    ? perSecond.toFixed(0)
    : perSecond.toFixed(perSecond >= 10 ? 1 : 2);
}

/** @param {number | null | undefined} seconds how long something took */
export function took(seconds) {
  if (seconds === null || seconds === undefined) return "–";
  if (seconds >= 1) return `${seconds.toFixed(seconds >= 10 ? 0 : 1)} s`;
  const ms = seconds * 1000;
  return `${ms >= 10 ? ms.toFixed(0) : ms.toFixed(1)} ms`;
}

/** @param {number} seconds an age, in its two largest units */
export function age(seconds) {
  const [minute, hour, day] = [60, 3600, 86_400];
  if (seconds >= day) return `${Math.floor(seconds / day)} d ${Math.floor((seconds % day) / hour)} h`;
  if (seconds >= hour) return `${Math.floor(seconds / hour)} h ${Math.floor((seconds % hour) / minute)} min`;
  if (seconds >= minute) return `${Math.floor(seconds / minute)} min ${Math.floor(seconds % minute)} s`;
  return `${Math.max(0, Math.floor(seconds))} s`;
}

/** @param {string | null | undefined} iso @returns {string} to the second, in UTC as the log has it */
export const momentText = (iso) => (iso ? `${iso.slice(0, 10)} ${iso.slice(11, 19)}` : "–");

/** @param {string | null | undefined} endpoint as its path or its name */
export const endpointName = (endpoint) => (endpoint ?? "").replace("/api/v1/", "");

/** @param {unknown} error */
export const wordsOf = (error) => (error instanceof Error ? error.message : String(error));
