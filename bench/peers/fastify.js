// A stack that a Node team would put together: fastify, @fastify/rate-limit over Redis, @fastify/http-proxy.
import proxy from "@fastify/http-proxy";
import rateLimit from "@fastify/rate-limit";
import fastify from "fastify";
import { Redis } from "ioredis";

const [upstream, port, redisUrl, limit] = process.argv.slice(2);
const app = fastify({ logger: false });
app.get("/up", () => "");
await app.register(rateLimit, {
  max: Number(limit),
  timeWindow: 60_000,
  redis: new Redis(redisUrl, { connectTimeout: 500, maxRetriesPerRequest: 1 }),
  keyGenerator: (request) => request.headers.authorization ?? request.ip,
});
await app.register(proxy, {
  upstream,
  prefix: "/api",
  rewritePrefix: "/api",
  undici: { connections: 256, pipelining: 1 },
});
await app.listen({ port: Number(port), host: "127.0.0.1" });
