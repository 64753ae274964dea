import { environmentOf } from "./dockerfile.ts";
import { gatewayStage } from "./image.ts";
import {
  configOf,
  documents,
  graceProblems,
  isAdminPath,
  type Manifest,
  type Read,
  text,
  unknownVariables,
} from "./settings.ts";

/** Contradictions between compose.yaml and what it starts. */
export function composeProblems(read: Read): string[] {
  const [compose] = documents(read, "compose.yaml");
  const { gateway } = compose.services;
  const config = configOf(text(read, "config/tollgate.yaml"));
  const services: [string, Manifest][] = Object.entries(compose.services);
  return [
    ...graceProblems("compose.yaml", gateway.stop_grace_period, config),
    ...unknownVariables(read, "compose.yaml", Object.keys(gateway.environment)),
    ...portProblems(compose, config),
    ...redisProblems(compose),
    ...services.flatMap(([name, service]) => volumeProblems(read, compose, name, service)),
    ...exampleProblems(read),
    ...journalProblems(read, gateway, config.store.journal),
    ...monitoringProblems(read, compose),
    ...scrapeProblems(read, compose, config.admin.port),
  ];
}

function portProblems(compose: Manifest, { server, admin }: ReturnType<typeof configOf>): string[] {
  const published = Object.entries<Manifest>(compose.services).flatMap(([name, { ports = [] }]) =>
    ports.map((port: string) => ({ name, port })),
  );
  const isPublic = ({ port }: { port: string }) => !port.startsWith("127.0.0.1:");
  const wrong = published.filter((one) => isPublic(one) && one.port !== `${server.port}:${server.port}`);
  const targets = published
    .filter(({ name }) => name === "gateway")
    .map(({ port }) => port.split(":").at(-1));
  const missing = [server.port, admin.port].filter((port) => !targets.includes(String(port)));
  return [
    ...wrong.map(({ name, port }) => `${name}: ${port} is open to everybody`),
    ...missing.map((port) => `the gateway listens on ${port}, which is not published`),
  ];
}

/** Settings of a Redis that holds money (decision 0009); every way to start one needs them. */
export function redisCommandProblems(where: string, words: readonly string[]): string[] {
  const command = words.join(" ");
  const wanted = ["--appendonly yes", "--appendfsync", "--maxmemory-policy noeviction", "--maxmemory "];
  return wanted
    .filter((flag) => !command.includes(flag))
    .map((flag) => `${where}: Redis lacks ${flag.trim()}`);
}

function redisProblems({ services }: Manifest): string[] {
  const host = new URL(services.gateway.environment.REDIS_URL).hostname;
  const kept = services.redis.volumes.some((volume: string) => volume.endsWith(":/data"));
  return [
    ...(host in services ? [] : [`REDIS_URL names ${host}, which is no service`]),
    ...redisCommandProblems("compose.yaml", services.redis.command),
    ...(kept ? [] : ["Redis keeps its data in the container"]),
  ];
}

function volumeProblems(read: Read, compose: Manifest, name: string, { volumes = [] }: Manifest): string[] {
  return volumes.flatMap((volume: string) => {
    const [source = ""] = volume.split(":");
    const there = source.startsWith("./") ? read(source.slice(2)) !== undefined : source in compose.volumes;
    return there ? [] : [`${name}: ${source} is not there`];
  });
}

/** Every variable that compose.yaml asks for is in the example, and no other. */
function exampleProblems(read: Read): string[] {
  const variables = new Set(
    [...text(read, "compose.yaml").matchAll(/\$\{([A-Z_]+)/g)].map(([, name]) => name),
  );
  const example = text(read, "deploy/compose.env.example");
  const given = new Set([...example.matchAll(/^([A-Z_]+)=/gm)].map(([, name]) => name));
  // A value that the environment decides is not changed by an edit of the file.
  const set = [...text(read, "compose.yaml").matchAll(/\$\{([A-Z_]+):-[^}]/g)].map(([, name]) => name);
  return [
    ...[...variables.symmetricDifference(given)].map(
      (name) => `compose.env.example and compose.yaml: ${name}`,
    ),
    ...set.map((name) => `compose.yaml sets ${name} whatever the configuration says`),
  ];
}

function journalProblems(read: Read, gateway: Manifest, journal: string): string[] {
  const workdir = gatewayStage(read).steps.find(({ keyword }) => keyword === "WORKDIR")?.text;
  const folder = `${workdir}/${journal}`;
  const targets: string[] = gateway.volumes.map((volume: string) => volume.split(":")[1]);
  return targets.some((target) => folder.startsWith(`${target}/`)) ? [] : [`${folder} is on no volume`];
}

/** Prometheus and Grafana find each other, their files and the gateway's metrics. */
function monitoringProblems(read: Read, compose: Manifest): string[] {
  const [{ datasources }] = documents(read, "deploy/grafana/datasource.yaml");
  const [{ providers }] = documents(read, "deploy/grafana/dashboards.yaml");
  const { prometheus, grafana } = compose.services;
  const url = new URL(datasources[0].url);
  /** True if there is a file or folder of ours behind a path of a container. */
  const isOurs = ({ volumes }: Manifest, path: string) =>
    volumes.some((volume: string) => {
      const [source = "", target = ""] = volume.split(":");
      return source.startsWith("./") && `${path}/`.startsWith(`${target}/`)
        ? read(source.slice(2) + path.slice(target.length)) !== undefined
        : false;
    });
  const file = /--config\.file=(\S+)/.exec(prometheus.command.join(" "))?.[1] ?? "";
  const home = grafana.environment.GF_DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH;
  const admin = environmentOf(gatewayStage(read)).ADMIN_HOST;
  const rules: [boolean, string][] = [
    [url.hostname in compose.services, `Grafana asks ${url.hostname}, which is no service`],
    [isOurs(prometheus, file), `Prometheus reads ${file}, which is not there`],
    [isOurs(grafana, providers[0].options.path), "Grafana looks for dashboards where none are"],
    [isOurs(grafana, home), "Grafana's home is no dashboard of ours"],
    [admin === "0.0.0.0" && isAdminPath("/metrics"), "Prometheus cannot reach the metrics"],
  ];
  return rules.filter(([holds]) => !holds).map(([, problem]) => problem);
}

/** Prometheus asks a service of ours on its admin port, and reads rules that are there. */
function scrapeProblems(read: Read, { services }: Manifest, adminPort: number): string[] {
  const [{ scrape_configs: jobs, rule_files: rules }] = documents(read, "config/prometheus/prometheus.yaml");
  const lookedUp: Manifest[] = jobs.flatMap((job: Manifest) => job.dns_sd_configs ?? []);
  const wrong = lookedUp.filter(({ names, port }) => !(names[0] in services) || port !== adminPort);
  const missing = rules.filter((file: string) => read(`config/prometheus/${file}`) === undefined);
  return [
    ...(lookedUp.length > 0 ? [] : ["Prometheus asks no service"]),
    ...wrong.map(({ names, port }) => `Prometheus asks ${names[0]}:${port}, which is no admin port`),
    ...missing.map((file: string) => `Prometheus reads ${file}, which is not there`),
  ];
}
