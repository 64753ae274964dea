import { expect, test } from "vitest";
import { createClient } from "../../../src/store/client.ts";

// Guarantee: no command that moves money is ever sent a second time by the library. Its defaults would.
test("the client neither resends, retries nor queues", () => {
  const client = createClient("redis://127.0.0.1:1", 250);
  expect(client.options).toMatchObject({
    autoResendUnfulfilledCommands: false,
    maxRetriesPerRequest: 0,
    enableOfflineQueue: false,
    enableAutoPipelining: false,
    commandTimeout: 250,
  });
  client.disconnect();
});
