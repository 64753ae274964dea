import { once } from "node:events";
import { mkdtemp, readFile, rm } from "node:fs/promises";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { expect, onTestFinished, test } from "vitest";
import { freePort } from "../../src/sandbox/redis.ts";
import { isInstalled, NGINX, startNginx } from "../support/edge/proxies.ts";
import { until } from "../support/until.ts";

const PAGE = join(import.meta.dirname, "../../docs/upstreams.md");

/** An upstream that gives its files to whoever has its credential. */
async function givenFiles() {
  const requests: unknown[] = [];
  const server = createServer(({ method, url, headers }, response) => {
    requests.push([method, url, headers.authorization]);
    response.end("a video");
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  onTestFinished(() => void server.close());
  return { url: `http://localhost:${(server.address() as AddressInfo).port}`, requests };
}

// Guarantee: with docs/upstreams.md as it stands there, a customer opens the video that it has paid for.
test.skipIf(!isInstalled(NGINX, "nginx"))(
  "the example of the page adds the credential to a video, and to nothing else",
  async () => {
    const files = await givenFiles();
    const [, example = ""] = /```nginx\n([\s\S]+?)```/.exec(await readFile(PAGE, "utf8")) ?? [];
    const folder = await mkdtemp(join(tmpdir(), "tollgate-video-"));
    onTestFinished(() => rm(folder, { recursive: true }));
    const port = await freePort();
    const location = example.replaceAll("https://api.example.com", files.url);
    const proxy = await startNginx(
      `events {}\nhttp {\nserver {\nlisten 127.0.0.1:${port};\n${location}}\n}\n`,
      folder,
    );
    onTestFinished(() => proxy.stop(2000));
    const open = (path: string, method = "GET") => fetch(`http://127.0.0.1:${port}${path}`, { method });
    await until(() =>
      open("/").then(
        () => true,
        () => false,
      ),
    );
    const video = await open("/videos/video_Ab-1");
    expect([video.status, await video.text()]).toEqual([200, "a video"]);
    expect((await open("/videos/video_Ab-1", "DELETE")).status).toBe(403);
    expect((await open("/videos/video_Ab-1/x")).ok).toBe(false);
    expect(files.requests).toEqual([["GET", "/v1/videos/video_Ab-1/content", "Bearer YOUR_KEY"]]);
  },
);
