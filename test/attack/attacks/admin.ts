import { readFileSync } from "node:fs";
import type { Attack } from "../attack.ts";
import { atOnce, Connection, deadlineOf, Tally } from "../wire.ts";

/** From a web page that an operator has open, or by somebody who guesses. */
const HOSTILE = "Host: hostile.example\r\nOrigin: http://hostile.example";
const READS = ["/console/", "/manage/v1/whoami", "/config", "/openapi.json"];

/** The admin port, by somebody who can reach it and should not. */
export const adminTokens: Attack = {
  name: "admin-tokens",
  title:
    "20 connections to the admin port: wrong tokens for the console, `/config` and `PUT /log-level`, and hostile Host and Origin, for 8 s",
  durationMs: 8000,
  env: { ADMIN_TOKEN: "token-of-the-operators-of-an-attacked-gateway" },
  async send(target) {
    const tally = new Tally();
    const untilMs = deadlineOf(target);
    const own = `Host: ${new URL(target.adminUrl).host}`;
    const statuses = { hostile: new Set<number>(), wrong: new Set<number>() };
    await atOnce(20, async (worker) => {
      let connection: Connection | undefined;
      for (let nth = worker; performance.now() < untilMs; nth++) {
        if (!connection || connection.closed) connection = await Connection.open(tally, target.adminUrl);
        const hostile = nth % 2 === 0;
        const token = `Authorization: Bearer wrong-token-${target.seed}-${nth}`;
        const path = READS[Math.floor(nth / 2) % READS.length]!;
        const line = nth % 7 === 1 ? "PUT /log-level" : `GET ${path}`;
        const body = nth % 7 === 1 ? 'Content-Length: 17\r\n\r\n{"level":"debug"}' : "\r\n";
        const request = `${line} HTTP/1.1\r\n${hostile ? HOSTILE : own}\r\n${token}\r\n${body}`;
        const status = await connection?.ask(request, untilMs);
        // The page of the console and the API description hold no secret and need no token.
        const needsToken = line !== "GET /console/" && line !== "GET /openapi.json";
        if (status && hostile) statuses.hostile.add(status);
        else if (status && needsToken) statuses.wrong.add(status);
      }
      connection?.destroy();
    });
    const refused = (of: Set<number>): boolean => [...of].every((status) => status >= 400 && status < 500);
    tally.check(
      "hostile Host and Origin are refused",
      refused(statuses.hostile),
      [...statuses.hostile].join(", "),
    );
    tally.check("wrong tokens are refused", refused(statuses.wrong), [...statuses.wrong].join(", "));
    return tally;
  },
};

const LINE_BYTES_MAX = 1024;
/** Some kinds of refusals, each with 20 lines a minute. */
const LINES_BYTES_MAX = 64 * 1024;

/** The log, by web pages and strangers who need no token to fill it. */
export const loudStrangers: Attack = {
  name: "loud-strangers",
  title:
    "20 connections to the admin port: calls of the management API with paths of 12 KB, without a token, with a wrong one and from another site, for 8 s",
  durationMs: 8000,
  env: { ADMIN_TOKEN: "token-of-the-operators-of-an-attacked-gateway" },
  async send(target) {
    const tally = new Tally();
    const untilMs = deadlineOf(target);
    const own = `Host: ${new URL(target.adminUrl).host}`;
    const who = ["", `Authorization: Bearer tgm_${"x".repeat(43)}\r\n`, "Origin: http://hostile.example\r\n"];
    await atOnce(20, async (worker) => {
      let connection: Connection | undefined;
      for (let nth = worker; performance.now() < untilMs; nth++) {
        if (!connection || connection.closed) connection = await Connection.open(tally, target.adminUrl);
        const path = `/manage/v1/accounts/${"%1B%5B2J".repeat(1500)}/${nth}`;
        const method = nth % 2 === 0 ? "POST" : "GET";
        const head = `${method} ${path} HTTP/1.1\r\n${own}\r\n${who[nth % 3]}Content-Length: 0\r\n\r\n`;
        await connection?.ask(head, untilMs);
      }
      connection?.destroy();
    });
    const lines = readFileSync(target.logFile, "utf8")
      .split("\n")
      .filter((line) => line.includes("/manage/v1/accounts/"));
    const longest = Math.max(0, ...lines.map((line) => Buffer.byteLength(line)));
    const all = lines.reduce((sum, line) => sum + Buffer.byteLength(line), 0);
    tally.check("no line about them has more than 1 KiB", longest <= LINE_BYTES_MAX, longest);
    tally.check("lines about them take at most 64 KiB", all <= LINES_BYTES_MAX, all);
    tally.check("there are lines about them", lines.length > 0, lines.length);
    return tally;
  },
};
