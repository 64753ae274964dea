import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { freePort } from "../../src/sandbox/redis.ts";
import { SUBJECT_CORE, startPinned } from "../processes.ts";
import { answering, startNginx } from "../world.ts";
import type { Subject } from "./subject.ts";

/** nginx that only proxies. */
export const nginxProxy: Subject = {
  name: "nginx alone",
  native: true,
  async start(world) {
    const port = await freePort();
    const { host } = new URL(world.upstreamUrl);
    const http = `
upstream generator { server ${host}; keepalive 256; keepalive_requests 1000000000; }
server {
  listen 127.0.0.1:${port};
  location / { proxy_pass http://generator; proxy_http_version 1.1; proxy_set_header Connection ""; }
}`;
    const child = await startNginx(world.folder, "nginx-proxy", http, SUBJECT_CORE);
    const url = `http://127.0.0.1:${port}`;
    await answering(url, "nginx");
    return { url, pid: child.pid, stop: child.stop };
  },
};

/** haproxy that only proxies. */
export const haproxyProxy: Subject = {
  name: "haproxy alone",
  native: true,
  async start(world) {
    const port = await freePort();
    const file = join(world.folder, "haproxy.cfg");
    writeFileSync(
      file,
      `global
  nbthread 1
defaults
  mode http
  timeout connect 5s
  timeout client 60s
  timeout server 60s
  http-reuse always
frontend in
  bind 127.0.0.1:${port}
  default_backend generator
backend generator
  server one ${new URL(world.upstreamUrl).host}
`,
    );
    const child = await startPinned("haproxy", ["-f", file, "-db"], {
      folder: world.folder,
      name: "haproxy",
    });
    const url = `http://127.0.0.1:${port}`;
    await answering(url, "haproxy");
    return { url, pid: child.pid, stop: child.stop };
  },
};
