import type { Redis } from "ioredis";
import { hostText, type RedisHost } from "../../domain/redis-address.ts";
import { clientAt, hangUp, type LoginAt } from "../client.ts";
import { Deadlines } from "../deadlines.ts";
import { StoreError } from "../reasons.ts";

export const ANSWER_MS = 1000;
/** How long the others are waited for after the first answer; a hung server must not delay what the others know. */
const OTHERS_MS = 200;

export interface Failure {
  server: string;
  /** In Redis's, the system's or our own words. */
  error: unknown;
}

/** Servers that are polled again and again. Their connections are kept between polls. */
export function createServerPolls(hosts: readonly RedisHost[], login: LoginAt) {
  const deadlines = new Deadlines(ANSWER_MS);
  let servers = new Map<string, ReturnType<typeof createServer>>();
  let silent = 0;

  /** Polls these from now on, and closes the connections to others. */
  function replace(next: readonly RedisHost[]): void {
    const before = servers;
    servers = new Map(next.map((at) => [hostText(at), before.get(hostText(at)) ?? createServer(at, login)]));
    for (const [text, server] of before) if (!servers.has(text)) server.disconnect();
  }
  replace(hosts);

  return {
    replace,
    /** Polls all of them. Resolves soon after the first answer, or once no server can answer any more. */
    async poll<Answer>(read: (redis: Redis, at: RedisHost) => Promise<Answer>) {
      const answers: Answer[] = [];
      const failures: Failure[] = [];
      const othersLate = Promise.withResolvers<void>();
      let waiting: NodeJS.Timeout | undefined;
      const polls = [...servers].map(async ([server, { poll }]) => {
        try {
          answers.push(await deadlines.within(poll(read)));
          waiting ??= setTimeout(othersLate.resolve, OTHERS_MS).unref();
        } catch (error) {
          failures.push({ server, error: servers.get(server)?.failed(error) ?? error });
        }
      });
      await Promise.race([Promise.all(polls), othersLate.promise]);
      clearTimeout(waiting);
      silent = polls.length - answers.length;
      return { answers: [...answers], failures: [...failures] };
    },
    /** How many of them had not answered the last poll by its end. */
    silent: (): number => silent,
    close: (): void => replace([]),
  };
}

function createServer(at: RedisHost, login: LoginAt) {
  const redis = clientAt(at, login, {
    connectTimeout: 0,
    retryStrategy: () => null,
  });
  let failure: Error | undefined;
  redis.on("error", (error: Error) => {
    failure = error;
  });

  return {
    disconnect: (): void => hangUp(redis),
    async poll<Answer>(read: (redis: Redis, at: RedisHost) => Promise<Answer>): Promise<Answer> {
      if (redis.status !== "ready") {
        if (redis.status !== "wait" && redis.status !== "end") hangUp(redis);
        failure = undefined;
        await redis.connect();
      }
      return read(redis, at);
    },
    /** Closes the connection, unless the server has answered in words. @returns the error that says most */
    failed(error: unknown): unknown {
      if (error instanceof StoreError) return error;
      hangUp(redis);
      return failure ?? error;
    },
  };
}
