import { expect, test } from "vitest";
import { inStoreWords } from "../../../src/redis/reasons.ts";

// Guarantee: nobody who reads why Redis is away puts an empty one in its place.
test.each([
  "Stream isn't writeable and enableOfflineQueue options is false",
  "not connected",
  "Connection is closed.",
  "Reached the max retries per request limit (which is 0).",
  "Command aborted due to connection close",
  "read ECONNRESET",
  "connect ECONNREFUSED 127.0.0.1:6379",
  "getaddrinfo ENOTFOUND redis",
  "getaddrinfo EAI_AGAIN redis",
  "connect EHOSTUNREACH 10.0.0.1:6379",
  "connect ENETUNREACH 10.0.0.1:6379",
  "connect ETIMEDOUT",
  "Command timed out",
  "no answer to the handshake",
  "no answer within 2 seconds",
])("an error of a Redis that is away says to bring it back with its data: %s", (message) => {
  const words = inStoreWords(new Error(message));
  expect(words).toContain("bring back this Redis with its data: an empty one in its place has no accounts");
  expect(inStoreWords(new Error(words)), "a line that it has made stays the same").toBe(words);
});

// Guarantee: a right that is missing leads to the list of rights, in the words of each server.
test.each([
  "NOPERM User tollgate has no permissions to run the 'evalsha' command",
  "ERR The user executing the script can't run this command or subcommand",
  "ERR ACL failure in script: User tollgate has no permissions to run the 'xadd' command",
])("a missing right says where the rights are: %s", (message) => {
  expect(inStoreWords(new Error(message))).toBe(
    `${message}; give it the rights in docs/operations/redis.md, Access`,
  );
});
