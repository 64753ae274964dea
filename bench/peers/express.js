// A stack that a Node team would put together: express, express-rate-limit over Redis, http-proxy-middleware.
import { Agent } from "node:http";
import express from "express";
import { rateLimit } from "express-rate-limit";
import { createProxyMiddleware } from "http-proxy-middleware";
import { Redis } from "ioredis";
import { RedisStore } from "rate-limit-redis";

const [upstream, port, redisUrl, limit] = process.argv.slice(2);
const redis = new Redis(redisUrl, { maxRetriesPerRequest: 1 });
const app = express();
app.disable("x-powered-by");
app.get("/up", (_request, response) => void response.end());
app.use(
  rateLimit({
    windowMs: 60_000,
    limit: Number(limit),
    standardHeaders: true,
    legacyHeaders: false,
    keyGenerator: (request) => request.headers.authorization ?? "",
    store: new RedisStore({ sendCommand: (command, ...words) => redis.call(command, ...words) }),
  }),
);
app.use(createProxyMiddleware({ target: upstream, agent: new Agent({ keepAlive: true, maxSockets: 256 }) }));
app.listen(Number(port), "127.0.0.1");
