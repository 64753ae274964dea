import { readMaintenance, setMaintenance } from "../api.js";
import { ask, unlessLeft } from "../dialogs.js";
import { given, textOrNull } from "../fields.js";
import { momentText, plural } from "../format.js";

/** Begins maintenance, or ends the one that lasts. */
export async function askMaintenance() {
  const now = await unlessLeft(readMaintenance());
  if (!now) return false;
  return now.on ? askEnd(now) : askBegin();
}

const askBegin = () =>
  ask({
    title: "Begin maintenance?",
    lines: [
      "In every gateway, generations and uploads of all customers are answered 503 within two seconds, until somebody ends it. Polls and credits go on; so do tasks begun.",
    ],
    fields: [
      // Empty at first: Enter that is pressed twice begins nothing.
      {
        name: "retry_after",
        label: "Customers wait (seconds)",
        hint: "Retry-After of each refusal, such as 60, up to a day.",
        type: "number",
        check: (value) => (/^\d+$/.test(value) ? undefined : "must be a whole number"),
      },
      {
        name: "message",
        label: "Message for customers",
        hint: "Such as: Back at 14:00 UTC. Empty: the usual words.",
      },
    ],
    verb: "Begin it",
    danger: true,
    async run({ retry_after, message }) {
      const { confirmed } = await setMaintenance(
        given({ on: true, retry_after: Number(retry_after), message: textOrNull(message) }),
      );
      return { said: "Maintenance has begun: generations and uploads are refused.", confirmed };
    },
  });

/** @param {Maintenance} now */
const askEnd = ({ since, message, retry_after: seconds }) =>
  ask({
    title: "End the maintenance?",
    lines: [
      `It began at ${momentText(since)} UTC. Customers are told to wait ${plural(seconds ?? 0, "second")}${message ? `: ${message}` : "."}`,
      "Every gateway takes generations and uploads again within two seconds.",
    ],
    verb: "End it",
    async run() {
      const { confirmed } = await setMaintenance({ on: false });
      return { said: "The maintenance has ended.", confirmed };
    },
  });
