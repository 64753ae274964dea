import { execFile } from "node:child_process";
import { existsSync } from "node:fs";
import { readFile, writeFile } from "node:fs/promises";
import { join, resolve } from "node:path";
import { promisify } from "node:util";
import { type GuardedChild, startChild } from "../../../src/sandbox/child.ts";

const ROOT = resolve(import.meta.dirname, "../../..");
const run = promisify(execFile);

/** Where a proxy listens, and what it is to find behind it. */
export interface Behind {
  port: number;
  /** Two gateways, or one named twice: host and port of each, and its admin port. */
  gateways: readonly [Place, Place];
  /** PEM file of the authority of the gateways' certificates, where they speak TLS. */
  ca?: string | undefined;
  /** A folder of its own. */
  folder: string;
}

export interface Place {
  host: string;
  adminPort: string;
}

export interface EdgeProxy {
  name: string;
  program: string;
  /** True if it asks gateways for /readyz, and so knows before one ends. */
  looksAtReadiness: boolean;
  /** Starts it by its example, after its own check of the file. */
  start(behind: Behind): Promise<GuardedChild>;
}

/** An example with these of its lines changed; fails where a line is not there. */
async function changed(example: string, changes: readonly (readonly [string, string])[]): Promise<string> {
  let text = await readFile(join(ROOT, example), "utf8");
  for (const [from, to] of changes) {
    if (!text.includes(from)) throw new Error(`${example} has no "${from}"`);
    text = text.replaceAll(from, to);
  }
  return text;
}

const haproxy: EdgeProxy = {
  name: "haproxy",
  program: "/usr/sbin/haproxy",
  looksAtReadiness: true,
  async start({ port, gateways: [first, second], ca, folder }) {
    const file = join(folder, "haproxy.cfg");
    const tls: [string, string][] =
      ca === undefined
        ? []
        : [
            ["# default-server ssl", "default-server ssl"],
            ["/etc/haproxy/gateways-ca.pem", ca],
          ];
    await writeFile(file, await changed("deploy/haproxy/haproxy.cfg", tls));
    const env = {
      TOLLGATE_BIND: `127.0.0.1:${port}`,
      TOLLGATE_1: first.host,
      TOLLGATE_1_ADMIN: first.adminPort,
      TOLLGATE_2: second.host,
      TOLLGATE_2_ADMIN: second.adminPort,
    };
    await run(this.program, ["-c", "-f", file], { env });
    return startChild(this.program, ["-db", "-f", file], { env, stdio: "ignore" });
  },
};

const nginx: EdgeProxy = {
  name: "nginx",
  program: "/usr/sbin/nginx",
  looksAtReadiness: false,
  async start({ port, gateways: [first, second], ca, folder }) {
    const tls: [string, string][] =
      ca === undefined
        ? []
        : [
            ["proxy_pass http://gateways", "proxy_pass https://gateways"],
            ["# proxy_ssl", "proxy_ssl"],
            ["/etc/nginx/gateways-ca.pem", ca],
          ];
    const text = await changed("deploy/nginx/nginx.conf", [
      ["listen 80;", `listen 127.0.0.1:${port};`],
      ["10.0.0.11:8080", first.host],
      ["10.0.0.12:8080", second.host],
      ...tls,
    ]);
    return startNginx(text, folder);
  },
};

/** @param text a whole configuration with one `http` block */
export async function startNginx(text: string, folder: string): Promise<GuardedChild> {
  const file = join(folder, "nginx.conf");
  const folders = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"].map(
    (each) => `${each}_temp_path ${folder}/${each};`,
  );
  const http = text.replace("http {", `http {\naccess_log off;\n${folders.join("\n")}\n`);
  await writeFile(file, `daemon off;\npid ${folder}/pid;\nerror_log ${folder}/errors;\n${http}`);
  await run(nginx.program, ["-t", "-p", folder, "-c", file]);
  return startChild(nginx.program, ["-p", folder, "-c", file], { stdio: "ignore" });
}

export const NGINX = nginx.program;
export const PROXIES: readonly EdgeProxy[] = [haproxy, nginx];

/** True if a program is there. Says so if not: tests that need it are left out then. */
export function isInstalled(program: string, debianPackage: string): boolean {
  if (existsSync(program)) return true;
  console.log(`Skipped: no ${program}. Install it: apt-get install ${debianPackage}.`);
  return false;
}
