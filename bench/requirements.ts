import { accessSync, constants, existsSync } from "node:fs";
import { delimiter, join } from "node:path";
import { SEARCHED } from "./processes.ts";

/** Programs and packages that a benchmark may need beyond the product's own dependencies. */
export type Requirement = "taskset" | "wrk" | "nginx" | "nginx-lua" | "haproxy" | "valgrind" | "node-peers";

const MODULES = "/usr/lib/nginx/modules";

const FOUND: Record<Requirement, () => boolean> = {
  taskset: () => onPath("taskset"),
  wrk: () => onPath("wrk"),
  nginx: () => onPath("nginx"),
  "nginx-lua": () =>
    ["ndk_http_module.so", "ngx_http_lua_module.so"].every((file) => existsSync(join(MODULES, file))) &&
    existsSync("/usr/share/lua/5.1/nginx/redis.lua"),
  haproxy: () => onPath("haproxy"),
  valgrind: () => onPath("valgrind"),
  "node-peers": () => existsSync(join(import.meta.dirname, "node_modules/fastify/package.json")),
};

/** The packages that bring it, as Debian and Ubuntu name them. */
const PACKAGES: Partial<Record<Requirement, string>> = {
  taskset: "util-linux",
  wrk: "wrk",
  nginx: "nginx-light",
  "nginx-lua": "libnginx-mod-http-lua lua-nginx-redis",
  haproxy: "haproxy",
  valgrind: "valgrind",
};

/** Which requirements this machine meets, and what would bring the others, in words to paste. */
export function lookAround(): { found: Set<Requirement>; advice: string[] } {
  const all = Object.keys(FOUND) as Requirement[];
  const found = new Set(all.filter((requirement) => FOUND[requirement]()));
  const missing = all.filter((requirement) => !found.has(requirement));
  const packages = missing.flatMap((requirement) => PACKAGES[requirement] ?? []);
  const advice: string[] = [];
  if (packages.length > 0) advice.push(`apt-get install -y --no-install-recommends ${packages.join(" ")}`);
  if (missing.includes("node-peers")) advice.push("npm ci --prefix bench");
  return { found, advice };
}

function onPath(name: string): boolean {
  return SEARCHED.split(delimiter).some((folder) => {
    try {
      accessSync(join(folder, name), constants.X_OK);
      return true;
    } catch {
      return false;
    }
  });
}
