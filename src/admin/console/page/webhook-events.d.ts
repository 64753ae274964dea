/** A sentence per event type; the console serves it as a module. */
export const WEBHOOK_EVENTS: Readonly<Record<string, string>>;
