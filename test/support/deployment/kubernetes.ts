import { posix } from "node:path";
import type { Config } from "../../../src/config/config.ts";
import { redisCommandProblems } from "./compose.ts";
import { environmentOf, lastOf } from "./dockerfile.ts";
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

const FOLDER = "deploy/kubernetes";

/** Contradictions between the manifests, the image and the configuration that they carry. */
export function kubernetesProblems(read: Read): string[] {
  const [kustomization] = documents(read, `${FOLDER}/kustomization.yaml`);
  const files: string[] = kustomization.resources;
  const all = files.flatMap((file) => documents(read, `${FOLDER}/${file}`));
  const [secret] = documents(read, `${FOLDER}/secret.example.yaml`);
  const gateway = all.find(({ kind }) => kind === "StatefulSet");
  const map = all.find(({ kind }) => kind === "ConfigMap");
  const config = configOf(Object.values<string>(map.data)[0] ?? "");
  const { spec } = gateway.spec.template;
  const [container] = spec.containers;
  return [
    ...graceProblems("gateway.yaml", spec.terminationGracePeriodSeconds, config),
    ...drainProblems(config),
    ...podProblems(read, spec, kustomization),
    ...probeProblems(container),
    ...portProblems(container, all, config),
    ...unknownVariables(read, "gateway.yaml", [
      ...container.env.map(({ name }: Manifest) => name),
      ...Object.keys(secret.stringData),
    ]),
    ...(container.envFrom[0].secretRef.name === secret.metadata.name ? [] : ["the Secret has another name"]),
    ...mountProblems(gateway, map, config),
    ...selectorProblems(read, gateway, all),
    ...redisProblems(read, secret),
    ...all.filter(({ metadata }) => metadata.namespace).map(({ kind }) => `${kind} names a namespace`),
  ];
}

/** Settings that pods that come and go need. */
function drainProblems({ server, upstream }: Config): string[] {
  const rules: [boolean, string][] = [
    [server.drainTimeoutMs > upstream.totalTimeoutMs, "drain_timeout cuts generations"],
    [server.drainDelayMs >= 5000, "drain_delay is too short for endpoints to be withdrawn"],
  ];
  return rules.filter(([holds]) => !holds).map(([, problem]) => problem);
}

function podProblems(read: Read, spec: Manifest, { images }: Manifest): string[] {
  const stage = gatewayStage(read);
  const [container] = spec.containers;
  const [user] = (lastOf(stage, "USER") ?? "").split(":").map(Number);
  const { version } = JSON.parse(text(read, "package.json"));
  const { securityContext } = container;
  const rules: [boolean, string][] = [
    [spec.securityContext.runAsUser === user, "runAsUser is not the image's user"],
    [spec.securityContext.runAsNonRoot === true, "the pod may run as root"],
    [spec.securityContext.fsGroup !== undefined, "the journal's volume belongs to root"],
    [spec.enableServiceLinks === false, "Kubernetes adds variables of its own"],
    [spec.automountServiceAccountToken === false, "the pod has a token it does not need"],
    [securityContext.readOnlyRootFilesystem === true, "the root filesystem may be written"],
    [securityContext.allowPrivilegeEscalation === false, "privileges may be gained"],
    [securityContext.capabilities.drop.includes("ALL"), "capabilities are left"],
    [container.image === images[0].name, "the kustomization renames another image"],
    [images[0].newTag === version, "the image's tag is not the version of package.json"],
    [environmentOf(stage).ADMIN_HOST === "0.0.0.0", "the kubelet cannot reach the admin port"],
  ];
  return rules.filter(([holds]) => !holds).map(([, problem]) => problem);
}

function probeProblems(container: Manifest): string[] {
  const probes = { startup: "/livez", liveness: "/livez", readiness: "/readyz" };
  return Object.entries(probes).flatMap(([name, path]) => {
    const { httpGet } = container[`${name}Probe`];
    const right = httpGet.path === path && httpGet.port === "admin" && isAdminPath(httpGet.path);
    return right ? [] : [`the ${name} probe asks ${httpGet.path} on ${httpGet.port}`];
  });
}

function portProblems({ ports }: Manifest, all: Manifest[], { server, admin }: Config): string[] {
  const names = new Map<string, number>(ports.map((port: Manifest) => [port.name, port.containerPort]));
  const services = all.filter(({ kind }) => kind === "Service");
  const targets: string[] = services.flatMap((service) =>
    service.spec.ports.map((port: Manifest) => port.targetPort),
  );
  const front = services.find(({ spec }) => spec.clusterIP !== "None");
  const rules: [boolean, string][] = [
    [names.get("http") === server.port && names.get("admin") === admin.port, "other ports than the config's"],
    [targets.every((target) => names.has(target)), "a Service points to a port that no container names"],
    [
      front.spec.ports.every((port: Manifest) => port.targetPort === "http"),
      "customers reach the admin port",
    ],
  ];
  return rules.filter(([holds]) => !holds).map(([, problem]) => problem);
}

/** The config is where the gateway looks, whole, and the journal on a claim that outlives the pod. */
function mountProblems(gateway: Manifest, map: Manifest, { store }: Config): string[] {
  const { containers, volumes } = gateway.spec.template.spec;
  const [{ env, volumeMounts }] = containers;
  const file: string = env.find(({ name }: Manifest) => name === "TOLLGATE_CONFIG")?.value ?? "";
  const claims: string[] = gateway.spec.volumeClaimTemplates.map(({ metadata }: Manifest) => metadata.name);
  const named = [...claims, ...volumes.map(({ name }: Manifest) => name)];
  const at = (path: string) => volumeMounts.find((mount: Manifest) => path.startsWith(`${mount.mountPath}/`));
  const config = volumes.find(({ name }: Manifest) => name === at(file)?.name);
  const rules: [boolean, string][] = [
    [config?.configMap?.name === map.metadata.name, "TOLLGATE_CONFIG is not in the ConfigMap"],
    [posix.basename(file) in map.data, "the ConfigMap has no such file"],
    [at(file)?.subPath === undefined, "a change of the ConfigMap never arrives through subPath"],
    [claims.includes(at(store.journal)?.name), "the journal dies with its pod"],
    [volumeMounts.every(({ name }: Manifest) => named.includes(name)), "a mount has no volume"],
  ];
  return rules.filter(([holds]) => !holds).map(([, problem]) => problem);
}

function selectorProblems(read: Read, gateway: Manifest, all: Manifest[]): string[] {
  const { labels } = gateway.spec.template.metadata;
  const matches = (selector: Record<string, string> = {}) =>
    Object.keys(selector).length > 0 &&
    Object.entries(selector).every(([name, value]) => labels[name] === value);
  const selectors = all.flatMap(({ kind, metadata, spec }) => {
    const selector = spec?.podSelector ?? spec?.selector;
    return selector === undefined ? [] : [{ of: `${kind} ${metadata.name}`, selector }];
  });
  const spread: Manifest[] = gateway.spec.template.spec.topologySpreadConstraints;
  const wrong = selectors.filter(({ selector }) => !matches(selector.matchLabels ?? selector));
  return [
    ...wrong.map(({ of }) => `${of} selects no gateway`),
    ...spread
      .filter(({ labelSelector }) => !matches(labelSelector.matchLabels))
      .map(() => "spread of nothing"),
    ...(all.some(({ kind, metadata }) => kind === "Service" && metadata.name === gateway.spec.serviceName)
      ? []
      : ["serviceName names no Service"]),
    ...(text(read, "config/prometheus/prometheus.yaml").includes(`[${gateway.spec.serviceName}.`)
      ? []
      : ["prometheus.yaml does not name the Service of the admin ports"]),
    // A job for all annotated pods is not called tollgate, as the alerts want it.
    ...Object.keys(gateway.spec.template.metadata.annotations ?? {})
      .filter((name) => name.startsWith("prometheus.io/"))
      .map((name) => `${name} has the gateways scraped under another job`),
  ];
}

function redisProblems(read: Read, secret: Manifest): string[] {
  const all = documents(read, `${FOLDER}/redis/redis.yaml`);
  const redis = all.find(({ kind }) => kind === "StatefulSet");
  const [container] = redis.spec.template.spec.containers;
  const { hostname } = new URL(secret.stringData.REDIS_URL);
  const service = all.find(({ kind, metadata }) => kind === "Service" && metadata.name === hostname);
  const [mount] = container.volumeMounts;
  const kept = redis.spec.volumeClaimTemplates.some(({ metadata }: Manifest) => metadata.name === mount.name);
  return [
    ...redisCommandProblems("redis.yaml", container.args),
    ...(service ? [] : ["REDIS_URL of the Secret names no Service"]),
    ...(kept ? [] : ["Redis keeps its data in the pod"]),
  ];
}
