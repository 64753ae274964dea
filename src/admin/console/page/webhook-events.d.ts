/** What each type of event tells, by type; the console serves it as a module. */
export const WEBHOOK_EVENTS: Readonly<Record<string, string>>;
