/** Types of events that an endpoint can ask for, and what each tells. */
export const WEBHOOK_EVENTS = {
  "task.completed": "a task has completed; its slot is free",
  "task.failed": "a task has failed; its slot is free, and a refund is booked",
  "credits.low": "the credits that can be spent have fallen below one of the account's thresholds",
  "key.revoked": "an API key was revoked",
  "key.expiring": "an API key ends within seven days",
  "account.suspended": "the account was suspended or closed",
} as const;
export const WEBHOOK_EVENT_TYPES = Object.keys(WEBHOOK_EVENTS) as (keyof typeof WEBHOOK_EVENTS)[];

/** The type of the message that an operator sends to try an endpoint. */
export const TEST_EVENT = "webhook.test";
