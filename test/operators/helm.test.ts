import { execFile } from "node:child_process";
import { mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { promisify } from "node:util";
import Schema from "typebox/schema";
import { afterAll, beforeAll, expect, test } from "vitest";
import { parse, parseAllDocuments, stringify } from "yaml";
import { checkedByTypes, KUBERNETES_TYPES } from "../support/deployment/manifest-types.ts";
import { configOf, type Manifest } from "../support/deployment/settings.ts";

// Needs Debian's packages golang-go, golang-github-masterminds-sprig-dev and golang-k8s-sigs-yaml-dev: helm/render.go renders the chart with
// the template engine and the functions of Helm.

const run = promisify(execFile);
const ROOT = resolve(import.meta.dirname, "../..");
const CHART = join(ROOT, "deploy/helm");
/** Where kubeconform finds the schemas of Kubernetes and of the Prometheus operator; without it, it is not asked. */
const SCHEMAS = process.env.KUBECONFORM_SCHEMAS;
const EVERYTHING = {
  ingress: { enabled: true, className: "nginx", tlsSecretName: "tls", annotations: { a: "b" } },
  podMonitor: { enabled: true, labels: { release: "prometheus" } },
  prometheusRule: { enabled: true, labels: { release: "prometheus" } },
  redisAuthorityConfigMap: "redis-ca",
  configFiles: { "prices.yaml": "first: 1\nsecond: 2\n" },
  env: [{ name: "LOG_LEVEL", value: "debug" }],
  imagePullSecrets: [{ name: "registry" }],
  nodeSelector: { disk: "ssd" },
  tolerations: [{ key: "video", operator: "Exists" }],
  affinity: { podAntiAffinity: {} },
  podAnnotations: { team: "video" },
  service: { annotations: { a: "b" } },
  journal: { storageClassName: "fast" },
  config: { store: { fallback_strategy: "allow" }, server: { trust_proxy: ["10.0.0.0/8"] } },
};

let dir: string;
beforeAll(async () => {
  dir = await mkdtemp(join(tmpdir(), "tollgate-helm-"));
  await writeFile(join(dir, "package.json"), "{}");
  await run("npm", ["install", "--ignore-scripts", "--no-audit", "--no-fund", KUBERNETES_TYPES], {
    cwd: dir,
  });
  const source = join(ROOT, "test/operators/helm/render.go");
  const go = { ...process.env, GO111MODULE: "off", GOPATH: "/usr/share/gocode", GOCACHE: join(dir, "go") };
  await run("go", ["build", "-o", join(dir, "render"), source], { env: go });
}, 240_000);
afterAll(() => rm(dir, { recursive: true, force: true }));

async function rendered(values: object = {}): Promise<{ file: string; objects: Manifest[]; notes: string }> {
  await writeFile(join(dir, "values.yaml"), stringify(values));
  const args = [CHART, "video", join(dir, "values.yaml")];
  const { stdout, stderr: notes } = await run(join(dir, "render"), args);
  const file = join(dir, "rendered.yaml");
  await writeFile(file, stdout);
  const documents = parseAllDocuments(stdout);
  expect(documents.flatMap(({ errors }) => errors)).toEqual([]);
  const objects = documents.map((document) => document.toJS()).filter((object) => object !== null);
  return { file, objects, notes };
}

const ofKind = (objects: readonly Manifest[], kind: string): Manifest =>
  objects.find((one) => one.kind === kind);

test("the chart renders objects with the fields of their kinds, and no other", async () => {
  const plain = await rendered();
  expect(plain.objects.map(({ kind }) => kind).toSorted()).toEqual(
    ["ConfigMap", "NetworkPolicy", "PodDisruptionBudget", "Service", "Service", "StatefulSet"].toSorted(),
  );
  expect(await checkedByTypes(dir, [plain.file])).toEqual({ ok: true, text: "" });
  const { file, objects } = await rendered(EVERYTHING);
  expect(await checkedByTypes(dir, [file])).toEqual({ ok: true, text: "" });
  expect(objects.map(({ kind }) => kind)).toEqual(
    expect.arrayContaining(["Ingress", "PodMonitor", "PrometheusRule"]),
  );
});

// As a person would with `helm template | kubeconform`; neither is a package of the registries that the tests use.
test.runIf(SCHEMAS)("kubeconform takes what it renders, and not a field that it misspells", async () => {
  const validation = async (values: object, change?: readonly [from: string, to: string]) => {
    const { file } = await rendered(values);
    if (change) await writeFile(file, (await readFile(file, "utf8")).replace(...change));
    const flags = ["-strict", "-summary", "-output", "json", "-schema-location", SCHEMAS!];
    const { stdout } = await run("kubeconform", [...flags, file]).catch((error: { stdout: string }) => error);
    return JSON.parse(stdout).summary;
  };
  const nothingElse = { invalid: 0, errors: 0, skipped: 0 };
  expect(await validation({})).toEqual({ valid: 6, ...nothingElse });
  expect(await validation(EVERYTHING)).toEqual({ valid: 9, ...nothingElse });
  const misspelled = await validation(EVERYTHING, ["podMetricsEndpoints:", "podMetricEndpoints:"]);
  expect(misspelled).toEqual({ ...nothingElse, valid: 8, invalid: 1 });
});

test("its gateways are those of the plain manifests", async () => {
  const { objects } = await rendered({ redisAuthorityConfigMap: "redis-ca" });
  const chart = ofKind(objects, "StatefulSet");
  const plain = parse(await readFile(join(ROOT, "deploy/kubernetes/gateway.yaml"), "utf8"));
  const withoutNames = (object: Manifest): unknown => {
    const { serviceName, selector, template, ...spec } = object.spec;
    const { topologySpreadConstraints, volumes, containers, ...pod } = template.spec;
    const [{ image, imagePullPolicy, env, envFrom, volumeMounts, ...container }] = containers;
    const mounts = volumeMounts.map(({ mountPath }: Manifest) => mountPath).toSorted();
    const spread = topologySpreadConstraints.map(({ topologyKey }: Manifest) => topologyKey);
    return { spec, pod, container, mounts, spread };
  };
  expect(withoutNames(chart)).toEqual(withoutNames(plain));
});

// Guarantee: who made the ConfigMap as deploy/kubernetes says has gateways that trust their Redis.
test("the authority of Redis is where make-secrets.sh and the manifests of Redis put it", async () => {
  const { objects } = await rendered({ redisAuthorityConfigMap: "redis-ca" });
  const [{ env, volumeMounts }] = ofKind(objects, "StatefulSet").spec.template.spec.containers;
  const { value: file } = env.find(({ name }: Manifest) => name === "NODE_EXTRA_CA_CERTS");
  expect(await readFile(join(ROOT, "deploy/redis/make-secrets.sh"), "utf8")).toContain(
    `\nNODE_EXTRA_CA_CERTS=${file}\n`,
  );
  const { mountPath } = volumeMounts.find(({ name }: Manifest) => name === "redis-ca");
  const key = file.replace(`${mountPath}/`, "");
  for (const topology of ["redis-sentinel", "redis-cluster"])
    expect(await readFile(join(ROOT, `deploy/kubernetes/${topology}/kustomization.yaml`), "utf8")).toMatch(
      new RegExp(`create configmap redis-ca --from-file=\\S+/${key} `),
    );
});

test("its configuration is one that the gateway takes, and a change of it makes no new pods", async () => {
  const before = await rendered();
  const after = await rendered(EVERYTHING);
  const config = (objects: Manifest[]) => configOf(ofKind(objects, "ConfigMap").data["tollgate.yaml"]);
  expect(config(before.objects)).toMatchObject({ store: { journal: "/var/lib/tollgate/journal" } });
  const service = before.objects.find(
    ({ kind, spec }) =>
      kind === "Service" && spec.ports.some(({ targetPort }: Manifest) => targetPort === "admin"),
  );
  expect(config(before.objects).admin.hosts).toContain(service.metadata.name);
  expect(config(after.objects)).toMatchObject({
    store: { journal: "/var/lib/tollgate/journal", fallbackStrategy: "allow" },
    upstream: { url: "https://generator.example.com" },
  });
  const changed = await rendered({ config: { server: { trust_proxy: ["10.0.0.0/8"] } } });
  const pods = (objects: Manifest[]) => ofKind(objects, "StatefulSet").spec.template;
  expect(pods(changed.objects)).toEqual(pods(before.objects));
});

// Guarantee: who has just installed the chart is led to the console, and to no 401.
test("its notes name the gateways, their Secret and the console", async () => {
  const { objects, notes } = await rendered();
  const { name } = ofKind(objects, "StatefulSet").metadata;
  expect(notes).toContain(`port-forward statefulset/${name} 9090 -n video `);
  expect(notes).toContain("http://localhost:9090/console");
  expect(notes).toContain(`the Secret ${name} with REDIS_URL and UPSTREAM_API_KEY, and with ADMIN_TOKEN`);
});

test("with allow, gateways are ready while Redis is away", async () => {
  const ready = ({ objects }: { objects: Manifest[] }): string =>
    ofKind(objects, "StatefulSet").spec.template.spec.containers[0].readinessProbe.httpGet.path;
  expect(ready(await rendered())).toBe("/readyz");
  expect(ready(await rendered(EVERYTHING))).toBe("/livez");
});

test("the schema takes the chart's values and refuses a name that it does not know", async () => {
  const schema = JSON.parse(await readFile(join(CHART, "values.schema.json"), "utf8"));
  const values = parse(await readFile(join(CHART, "values.yaml"), "utf8"));
  const check = Schema.Compile(schema);
  expect(check.Check(values)).toBe(true);
  expect(Object.keys(schema.properties).toSorted()).toEqual([...Object.keys(values), "global"].toSorted());
  expect(check.Check({ ...values, replica: 2 })).toBe(false);
  expect(check.Check({ ...values, replicas: "3" })).toBe(false);
  expect(check.Check({ ...values, podMonitor: { enable: true } })).toBe(false);
});

test("chart, image and package have one version", async () => {
  const { version, appVersion } = parse(await readFile(join(CHART, "Chart.yaml"), "utf8"));
  const { version: released } = JSON.parse(await readFile(join(ROOT, "package.json"), "utf8"));
  expect({ version, appVersion }).toEqual({ version: released, appVersion: released });
});
