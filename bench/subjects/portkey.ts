import { join } from "node:path";
import { freePort } from "../../src/sandbox/redis.ts";
import type { Target } from "../load/wrk.ts";
import { startPinned } from "../processes.ts";
import { GENERATION } from "../requests.ts";
import { answering } from "../world.ts";
import type { Subject } from "./subject.ts";

const MAIN = join(import.meta.dirname, "../node_modules/@portkey-ai/gateway/build/start-server.js");

/** A gateway for AI APIs on Node that only forwards here: https://github.com/Portkey-AI/gateway */
export const portkey: Subject = {
  name: "Portkey's gateway",
  async start(world) {
    const port = await freePort();
    const child = await startPinned(process.execPath, [MAIN, `--port=${port}`, "--headless"], {
      folder: world.folder,
      name: "portkey",
      env: { NODE_ENV: "production" },
    });
    const url = `http://127.0.0.1:${port}`;
    await answering(url, "Portkey's gateway");
    return { url, pid: child.pid, stop: child.stop };
  },
};

/** Its pictures are what comes nearest to a video: a JSON body with a prompt, handed on as it is. */
export const portkeyTarget = (upstreamUrl: string, token: string): Target => ({
  method: "POST",
  path: "/v1/images/generations",
  token,
  body: GENERATION.body,
  headers: { "x-portkey-provider": "openai", "x-portkey-custom-host": upstreamUrl },
});
