import { durationMs } from "../../../src/config/setting-types.ts";
import { parseRedisAddress } from "../../../src/domain/redis-address.ts";
import { slotOfPartition } from "../../failover/slots.ts";
import { documents, type Manifest, type Read, text, unknownVariables } from "./settings.ts";

const SHARED = "deploy/redis";
/** Where containers and machines have the files of deploy/redis. */
const INSTALLED = "/etc/tollgate-redis/";
const MODES = ["replicated", "cluster", "sentinel"];
const PARTITIONS = 64;

/** Contradictions in what several Redis are started from: shared files, Compose, Kubernetes, systemd. */
export function redisNodesProblems(read: Read): string[] {
  return [
    ...sharedProblems(read),
    ...["sentinel", "cluster"].flatMap((name) => [
      ...composeProblems(read, name),
      ...podProblems(read, name),
    ]),
    ...unitProblems(read),
  ];
}

/** The value of a directive in a configuration file of Redis. */
function setting(read: Read, file: string, name: string): string | undefined {
  return new RegExp(`^${name} (.*)$`, "m").exec(text(read, `${SHARED}/${file}`))?.[1];
}

function sharedProblems(read: Read): string[] {
  const redis = (name: string) => setting(read, "redis.conf", name);
  const cluster = (name: string) => setting(read, "cluster.conf", name);
  const delayMs = 1000 * Number(/RESTART_DELAY:-(\d+)/.exec(text(read, `${SHARED}/start.sh`))?.[1]);
  const downMs = Number(setting(read, "sentinel.conf", "sentinel down-after-milliseconds tollgate"));
  const [, slots = ""] = /^slots="([\d\s]+)"/m.exec(text(read, `${SHARED}/cluster.sh`)) ?? [];
  const partitions = Array.from({ length: PARTITIONS }, (_, at) => slotOfPartition(at)).sort((a, b) => a - b);
  const rights = [...text(read, `${SHARED}/users.acl`).matchAll(/^user (\w+) .*$/gm)];
  const tollgate = rights.find(([, name]) => name === "tollgate")?.[0] ?? "";
  const rules: [boolean, string][] = [
    [redis("appendonly") === "yes", "Redis lacks appendonly yes"],
    [redis("appendfsync") !== "no", "Redis does not flush its append-only file"],
    [redis("maxmemory-policy") === "noeviction", "Redis lacks noeviction"],
    [redis("maxmemory") !== undefined, "Redis lacks maxmemory"],
    [redis("min-replicas-to-write") === "1", "a primary that is cut off takes writes"],
    [redis("replica-priority") === undefined, "replicas differ in priority"],
    [redis("port") === "0" && redis("tls-replication") === "yes", "passwords travel without TLS"],
    [cluster("min-replicas-to-write") === "0", "a promoted replica would take no writes"],
    [cluster("tls-cluster") === "yes", "the bus of the cluster is open"],
    [cluster("cluster-require-full-coverage") === "no", "one primary that is away stops all"],
    [
      delayMs > 2 * Math.max(downMs, Number(cluster("cluster-node-timeout"))),
      "a restart precedes a failover",
    ],
    [
      slots.split(/\s+/).map(Number).join() === partitions.join(),
      "cluster.sh has other slots than partitions",
    ],
    [
      / ~tg:\* -@all /.test(tollgate) && tollgate.includes("-@dangerous"),
      "gateways have more than their keys",
    ],
    [
      /^user default off ~\* &\* \+@all$/m.test(text(read, `${SHARED}/users.acl`)),
      "a restart loses scripts' writes",
    ],
    [!/nopass|>/.test(text(read, `${SHARED}/users.acl`)), "a user has no password, or one for all to read"],
  ];
  return rules.filter(([holds]) => !holds).map(([, problem]) => `${SHARED}: ${problem}`);
}

/** The hosts that the certificate of a file's `make-secrets.sh` line is made for, and those of its REDIS_URL. */
function secretsOf(read: Read, path: string) {
  const comment = text(read, path).replaceAll(/\\\n# */g, "");
  const [, words = ""] = /make-secrets\.sh (.+)/.exec(comment) ?? [];
  const [, address = "", ...names] = words.split(/\s+/);
  const { kind, hosts, tls } = parseRedisAddress(address);
  return { kind, tls, names: new Set([...hosts.map(({ host }) => host), ...names]), hosts };
}

interface Started {
  name: string;
  command: string[];
  env: Record<string, string>;
}

/** Arguments of start.sh for all servers of one topology, against its certificate and its REDIS_URL. */
function startedProblems(read: Read, where: string, head: string, started: readonly Started[]): string[] {
  const { kind, tls, names, hosts } = secretsOf(read, head);
  const place = ({ env }: Started) => `${env.HOST}:${env.PORT ?? (env.MODE === "sentinel" ? 26_379 : 6379)}`;
  const servers = started.filter(({ env }) => env.MODE !== "sentinel").map(place);
  const polled =
    kind === "sentinel" ? started.filter(({ env }) => env.MODE === "sentinel").map(place) : servers;
  const wrong = started.flatMap(({ name, command, env }) => {
    const script = command[1]?.replace(INSTALLED, `${SHARED}/`) ?? "";
    const rules: [boolean, string][] = [
      [MODES.includes(env.MODE ?? ""), `starts as ${env.MODE}`],
      [read(script) !== undefined, `starts ${command.join(" ")}`],
      [names.has(env.HOST ?? ""), `${env.HOST} is not in the certificate`],
      [env.NODES?.split(" ").join() === servers.join(), "NODES names other servers"],
    ];
    return rules.filter(([holds]) => !holds).map(([, problem]) => `${name}: ${problem}`);
  });
  const unknown = hosts.filter(({ host, port }) => !polled.includes(`${host}:${port}`));
  return [
    ...wrong,
    ...unknown.map(({ host, port }) => `REDIS_URL names ${host}:${port}`),
    ...(tls ? [] : ["REDIS_URL is without TLS"]),
  ].map((problem) => `${where}: ${problem}`);
}

/** Compose adds such a file to compose.yaml. */
function composeProblems(read: Read, name: string): string[] {
  const path = `deploy/compose/${name}.yaml`;
  const [compose] = documents(read, path);
  const [base] = documents(read, "compose.yaml");
  const { gateway, ...servers } = compose.services as Record<string, Manifest>;
  const started = Object.entries(servers).map(([service, { command, environment }]) => ({
    name: service,
    command,
    env: environment,
  }));
  const volumes = { ...base.volumes, ...compose.volumes };
  const maxmemory = Number.parseInt(setting(read, "redis.conf", "maxmemory") ?? "", 10);
  const wrong = Object.entries(servers).flatMap(([service, manifest]) => {
    const sources: string[] = manifest.volumes.map((volume: string) => volume.split(":")[0]);
    const data = manifest.volumes.find((volume: string) => volume.endsWith(":/data"))?.split(":")[0];
    const rules: [boolean, string][] = [
      [manifest.networks.store.ipv4_address === manifest.environment.HOST, "has another address than HOST"],
      [data === service && data in volumes, "keeps its data elsewhere"],
      [sources.every((source) => source in volumes || read(source.slice(2)) !== undefined), "mounts nothing"],
      [Number.parseInt(manifest.mem_limit, 10) === 2 * maxmemory, "mem_limit is not twice maxmemory"],
    ];
    return rules.filter(([holds]) => !holds).map(([, problem]) => `${path}: ${service} ${problem}`);
  });
  return [
    ...wrong,
    ...startedProblems(read, path, path, started),
    ...unknownVariables(read, path, Object.keys(gateway.environment)),
    ...(Object.keys(base.services).includes("redis") && "redis" in servers ? [] : ["a single Redis is left"]),
    ...(gateway.volumes[0].split(":")[1] === gateway.environment.NODE_EXTRA_CA_CERTS
      ? []
      : [`${path}: the gateway has no certificate of the authority`]),
  ];
}

/** Kustomize adds such a patch to redis-nodes. */
function podProblems(read: Read, name: string): string[] {
  const folder = `deploy/kubernetes/redis-${name}`;
  const [patch] = documents(read, `${folder}/redis.yaml`);
  const all = documents(read, "deploy/kubernetes/redis-nodes/redis.yaml");
  const base = all.find(({ kind }) => kind === "StatefulSet");
  const [config] = documents(read, `${SHARED}/kustomization.yaml`);
  const { replicas, template } = patch.spec;
  const [redis] = base.spec.template.spec.containers;
  const started = Array.from({ length: replicas }, (_, at) =>
    template.spec.containers.map((container: Manifest) => podContainer(container, redis, at)),
  ).flat();
  const [{ files }] = config.configMapGenerator;
  const needed = ["start.sh", "cli.sh", "cluster.sh", "redis.conf", "cluster.conf", "sentinel.conf"];
  const spread =
    base.spec.template.spec.affinity.podAntiAffinity.requiredDuringSchedulingIgnoredDuringExecution;
  const mounts = base.spec.template.spec.volumes.map((volume: Manifest) => volume.configMap?.name);
  const rules: [boolean, string][] = [
    [needed.every((file) => files.includes(file)), "the ConfigMap lacks a file"],
    [mounts.includes(config.configMapGenerator[0].name), "the ConfigMap is not mounted"],
    [spread[0].labelSelector.matchLabels["app.kubernetes.io/name"] === "redis", "servers share a node"],
    [
      all.some(({ kind, spec }) => kind === "Service" && spec.publishNotReadyAddresses),
      "names come too late",
    ],
    [all.some(({ kind, spec }) => kind === "PodDisruptionBudget" && spec.maxUnavailable === 1), "no budget"],
  ];
  return [
    ...startedProblems(read, folder, `${folder}/kustomization.yaml`, started),
    ...rules.filter(([holds]) => !holds).map(([, problem]) => `${folder}: ${problem}`),
  ];
}

/** A container of a patch, in a pod of that number, with what the base gives it. */
function podContainer(container: Manifest, base: Manifest, at: number): Started {
  const pod = `redis-${at}`;
  const list: Manifest[] = [...(container.name === base.name ? base.env : []), ...container.env];
  const env = Object.fromEntries(
    list.map(({ name, value }) => [name, (value ?? pod).replace("$(POD)", pod)]),
  );
  return { name: `${pod} ${container.name}`, command: container.command ?? base.command, env };
}

function unitProblems(read: Read): string[] {
  const path = "deploy/systemd/tollgate-redis@.service";
  const unit = text(read, path);
  const value = (name: string) => new RegExp(`^${name}=(.*)$`, "m").exec(unit)?.[1] ?? "";
  const script = value("ExecStart").replace(`/bin/sh ${INSTALLED}`, `${SHARED}/`);
  const rules: [boolean, string][] = [
    [read(script) !== undefined, "ExecStart starts no file of ours"],
    [value("Environment") === `DATA=%S/${value("StateDirectory")}`, "the data is outside of StateDirectory"],
    [value("Restart") === "always", "it stays away"],
    [(durationMs(value("TimeoutStopSec")) ?? 0) > 10_000, "it is killed before its replicas have everything"],
  ];
  return rules.filter(([holds]) => !holds).map(([, problem]) => `${path}: ${problem}`);
}
