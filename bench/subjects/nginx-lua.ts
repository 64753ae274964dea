import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import type { IssuedKey } from "../../src/operations/keys/issue-key.ts";
import { partitionOf } from "../../src/records/names.ts";
import { freePort } from "../../src/sandbox/redis.ts";
import { SUBJECT_CORE } from "../processes.ts";
import { partitions, partitionTag, type Template } from "../recorder.ts";
import { generateOne } from "../requests.ts";
import type { Tree } from "../tree.ts";
import { answering, startNginx, type World } from "../world.ts";
import type { Calls } from "./calls.ts";
import { startGateway } from "./gateway.ts";
import type { RunningSubject, Subject } from "./subject.ts";

const MODULES = `load_module /usr/lib/nginx/modules/ndk_http_module.so;
load_module /usr/lib/nginx/modules/ngx_http_lua_module.so;`;

/** Placeholders that stay the same for a key are filled in once per key; the rest at each call. */
const STATIC = /\{(key|account|tag)\}/g;

/**
 * nginx with LuaJIT that runs a tree's own ADMIT, and BIND unless `admitOnly`, with one call each over pooled connections.
 * Nothing else: no validation, no headers of limits, no log, no metrics.
 */
export function nginxLuaSubject(tree: Tree, calls: Calls, admitOnly = false): Subject {
  return {
    name: admitOnly ? "nginx + Lua, admit only" : "nginx + Lua",
    native: true,
    start: (world, keys) => startNginxLua(world, tree, calls, keys, admitOnly),
  };
}

async function startNginxLua(
  world: World,
  tree: Tree,
  calls: Calls,
  keys: readonly IssuedKey[],
  admitOnly: boolean,
): Promise<RunningSubject> {
  await teachScripts(world, tree, keys.at(-1)!.key);
  const port = await freePort();
  const count = await partitions(world);
  const rows = keys.map(({ key, keyId, accountId }) => {
    const tag = partitionTag(partitionOf(accountId, count));
    return `["${key}"]={key="${keyId}",account="${accountId}",tag="${tag}"}`;
  });
  writeFileSync(join(world.folder, "tokens.lua"), `return {${rows.join(",\n")}}\n`);
  writeFileSync(join(world.folder, "admission.lua"), admissionModule(world, calls));
  const http = config(world, port, admitOnly);
  const child = await startNginx(world.folder, "nginx-lua", http, SUBJECT_CORE, MODULES);
  const url = `http://127.0.0.1:${port}`;
  await answering(`${url}/up`, "nginx + Lua");
  // A mistake in its calls shows here, and not as a stretch of errors.
  await generateOne(url, keys[0]!.key).catch((cause: unknown) => {
    const log = readFileSync(join(world.folder, "nginx-lua.log"), "utf8").trim().slice(-1000);
    throw new Error(`nginx + Lua does not serve: ${log}`, { cause });
  });
  return { url, pid: child.pid, stop: child.stop };
}

/** A Redis knows the scripts once a gateway has run them there. */
async function teachScripts(world: World, tree: Tree, key: string): Promise<void> {
  const gateway = await startGateway(world, tree);
  try {
    await generateOne(gateway.url, key);
  } finally {
    await gateway.stop();
  }
}

function config(world: World, port: number, admitOnly: boolean): string {
  const { host } = new URL(world.upstreamUrl);
  const proxy = `proxy_pass http://generator; proxy_http_version 1.1; proxy_set_header Connection "";`;
  const gate = admitOnly
    ? `location / { access_by_lua_block { require("admission").admit() } ${proxy} }`
    : `location / { client_body_buffer_size 16k; content_by_lua_block { require("admission").admit_and_bind() } }
       location /upstream/ { internal; rewrite ^/upstream(/.*)$ $1 break; ${proxy} }`;
  return `
lua_package_path "${world.folder}/?.lua;;";
init_worker_by_lua_block { require("admission") }
upstream generator { server ${host}; keepalive 256; keepalive_requests 1000000000; }
server {
  listen 127.0.0.1:${port};
  location = /up { return 204; }
  ${gate}
}`;
}

/** The Lua module of both forms, its calls written out from the templates. */
function admissionModule(world: World, { admit, bind }: Calls): string {
  return `local redis = require "nginx.redis"
local keys = dofile("${world.folder}/tokens.lua")
local M = {}

-- Under load a connection is used by one request at a time; finished ones wait in the pool.
local function connect()
  local r = redis:new()
  r:set_timeout(1000)
  local ok, why = r:connect("127.0.0.1", ${world.redisPort})
  if not ok then error(why) end
  return r
end

local function outcome(reply)
  while type(reply) == "table" do reply = reply[1] end
  -- A reply may be one word of JSON, whose first text is the outcome.
  return string.match(reply, '^[%["]*([%w_]+)')
end

local function known()
  local token = string.match(ngx.var.http_authorization or "", "^Bearer (.+)$")
  local k = keys[token]
  if not k then return ngx.exit(401) end
  if not k.a then
    k.a = ${staticTable(admit)}
    k.b = ${staticTable(bind)}
  end
  return k
end

local function run_admit(k, request)
  local soon = string.format("%.0f", ngx.now() * 1000 + 5000)
  local r = connect()
  local reply, why = ${callText(admit, "k.a")}
  if not reply then error(why) end
  r:set_keepalive(60000, 256)
  if not string.find(outcome(reply), "^admitted") then
    ngx.status = 429
    ngx.header["Content-Type"] = "application/json"
    ngx.header["Retry-After"] = "60"
    ngx.print('{"code":2001,"msg":"Rate limit exceeded","retryAfter":60}')
    return ngx.exit(429)
  end
end

local function run_bind(k, request, task)
  -- The only time in BIND is that of the admission, a moment ago.
  local soon = string.format("%.0f", ngx.now() * 1000)
  local r = connect()
  local reply, why = ${callText(bind, "k.b")}
  if not reply then error(why) end
  r:set_keepalive(60000, 256)
  if not string.find(outcome(reply), "^bound") then error("not bound: " .. tostring(outcome(reply))) end
end

local function new_request() return "req_" .. string.sub(ngx.var.request_id, 1, 22) end

function M.admit()
  local k = known()
  run_admit(k, new_request())
end

function M.admit_and_bind()
  local k, request = known(), new_request()
  ngx.req.read_body()
  run_admit(k, request)
  local answer = ngx.location.capture("/upstream" .. ngx.var.uri, { method = ngx.HTTP_POST })
  local task = string.match(answer.body, '"task_id":"([^"]+)"')
  if not task then return ngx.exit(502) end
  run_bind(k, request, task)
  ngx.header["Content-Type"] = "application/json"
  ngx.header["Content-Length"] = #answer.body
  ngx.print(answer.body)
end

return M
`;
}

/** Every word that depends on the key alone, by its position. */
function staticTable({ words }: Template): string {
  const rows = words.map((word) => (isStatic(word) ? lua(word, "k") : "false"));
  return `{ ${rows.slice(1).join(", ")} }`;
}

/** The call itself. */
function callText({ words }: Template, table: string): string {
  const rows = words.slice(1).map((word, at) => (isStatic(word) ? `${table}[${at + 1}]` : lua(word, "k")));
  return `r:evalsha(${rows.join(", ")})`;
}

const isStatic = (word: string): boolean => !/\{[a-z]+\}/.test(word.replaceAll(STATIC, ""));

/** A template as a Lua expression. */
function lua(word: string, key: string): string {
  const parts = word.split(/(\{(?:key|account|tag|task|request|soon)\})/).filter(Boolean);
  if (parts.length === 0) return '""';
  return parts
    .map((part) => {
      const name = /^\{(\w+)\}$/.exec(part)?.[1];
      if (name === undefined) return luaString(part);
      return ["key", "account", "tag"].includes(name) ? `${key}.${name}` : name;
    })
    .join(" .. ");
}

const luaString = (text: string): string =>
  `"${[...Buffer.from(text)].map((byte) => `\\${String(byte).padStart(3, "0")}`).join("")}"`;
