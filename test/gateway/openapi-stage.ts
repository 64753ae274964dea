import { inject } from "vitest";
import type { Behaviour } from "../../src/sandbox/generator/behaviour.ts";
import { startFaultProxy } from "../support/fault-proxy.ts";
import { givenGateway, type Reply, type TestGateway, until } from "../support/gateway.ts";
import type { Generator } from "../support/generator.ts";
import { type Document, readDescription } from "../support/openapi.ts";
import { priceListsOf } from "../support/prices.ts";
import { head, rawClient } from "./spec-stage.ts";

export type ApiStage = Awaited<ReturnType<typeof givenApiStage>>;

/** Gateways in every mood that an error needs, in front of one generator; and the description that one serves. */
export async function givenApiStage() {
  const patient = { tasks: { cacheMs: 0 } };
  const main = await givenGateway({ config: patient });
  const { generator } = main;
  const [impatient, narrow, single, strict, broken, lenient, away] = await Promise.all([
    givenGateway({
      generator,
      config: {
        ...patient,
        server: { bodyTimeoutMs: 1000, utilityRequestsPerSecond: 1 },
        upstream: { headersTimeoutMs: 1000, totalTimeoutMs: 1500 },
      },
    }),
    givenGateway({
      generator,
      config: { upstream: { connections: 1, headersTimeoutMs: 10_000, totalTimeoutMs: 10_000 } },
    }),
    givenGateway({ generator, config: { server: { maxRequestsInFlight: 1 } } }),
    givenGateway({ generator, config: { server: { unknownKeysPerMinute: 1 } } }),
    // A price that depends on what the body has not: a fault of the gateway's own.
    givenGateway({
      generator,
      config: {
        priceLists: priceListsOf({ "gen2/text-to-video": { by_n_frames: { "10": 1, "15": 1, "25": 1 } } }),
      },
    }),
    givenLosable(generator, "allow"),
    givenLosable(generator, "deny"),
  ]);
  await away.loseStore();
  const served = await fetch(`${main.adminUrl}/openapi.json`);
  const document = (await served.json()) as Document;

  return {
    main,
    impatient,
    narrow,
    single,
    strict,
    away,
    broken,
    lenient,
    served,
    document,
    description: readDescription(document),
    /** Steers the generator for one piece of work. */
    async during<T>(behaviour: Partial<Behaviour>, work: () => Promise<T>): Promise<T> {
      generator.behave(behaviour);
      try {
        return await work();
      } finally {
        generator.reset();
      }
    },
    async stop(): Promise<void> {
      await Promise.all([impatient, narrow, strict, broken, lenient, away].map((gateway) => gateway.stop()));
      await main.stop();
    },
  };
}

/** A gateway whose store can be taken away. */
async function givenLosable(generator: Generator, fallbackStrategy: "allow" | "deny") {
  const proxy = await startFaultProxy(Number(new URL(inject("redisUrl")).port));
  const gateway = await givenGateway({
    generator,
    redisUrl: proxy.url,
    config: { store: { fallbackStrategy } },
  });
  gateway.redis.disconnect();
  const isReady = async () => (await fetch(`${gateway.adminUrl}/readyz`)).status === 200;
  await until(isReady, "the gateway to be ready");
  return {
    ...gateway,
    async loseStore(): Promise<void> {
      await proxy.steer({ connections: "refuse" });
      await until(async () => !(await isReady()), "the store to be lost");
    },
    async stop(): Promise<void> {
      await proxy.heal();
      await gateway.stop();
      await proxy.stop();
    },
  };
}

/** Sends bytes over a bare connection and takes the one answer. */
export async function sayRaw(gateway: Pick<TestGateway, "url">, text: string): Promise<Reply> {
  const client = await rawClient(gateway.url);
  try {
    client.write(text);
    return await client.answer();
  } finally {
    client.end();
  }
}

/** The head of a request that is well-formed but for the lines that are added. */
export const rawHead = (method: string, path: string, key: string, ...lines: string[]): string =>
  head(`${method} ${path} HTTP/1.1`, "Host: a", `Authorization: Bearer ${key}`, ...lines);

/** Sends a form with one file of these bytes, each character one byte. */
export async function sendForm(
  gateway: Pick<TestGateway, "request">,
  key: string,
  file: string,
  name = "file",
): Promise<Reply> {
  const part = `Content-Disposition: form-data; name="${name}"; filename="boat.gif"`;
  return gateway.request("POST", "/api/v1/upload", {
    key,
    body: `--frontier\r\n${part}\r\n\r\n${file}\r\n--frontier--\r\n`,
    headers: { "content-type": "multipart/form-data; boundary=frontier" },
  });
}
