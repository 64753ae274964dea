import { existsSync, globSync, readdirSync, readFileSync, statSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, test } from "vitest";
import { adminHostsProblems } from "../../support/deployment/admin-hosts.ts";
import { composeProblems } from "../../support/deployment/compose.ts";
import { isInContext, parseDockerfile } from "../../support/deployment/dockerfile.ts";
import { haproxyProblems, unitProblems } from "../../support/deployment/host.ts";
import { imageProblems } from "../../support/deployment/image.ts";
import { kubernetesProblems } from "../../support/deployment/kubernetes.ts";
import { redisNodesProblems } from "../../support/deployment/redis-nodes.ts";
import { documents, guideProblems, type Read } from "../../support/deployment/settings.ts";

const ROOT = join(import.meta.dirname, "../../..");
const K8S = "deploy/kubernetes";
const UNIT = "deploy/systemd/tollgate.service";

const repository: Read = (path) => {
  const file = join(ROOT, path);
  if (path === "" || !existsSync(file)) return undefined;
  return statSync(file).isDirectory() ? "" : readFileSync(file, "utf8");
};

/** The repository with one thing changed in one file. */
function changed(path: string, from: string, to: string): Read {
  const source = repository(path) ?? "";
  expect(source, `${path} still has what this test changes`).toContain(from);
  return (wanted) => (wanted === path ? source.replace(from, to) : repository(wanted));
}

/** A change of a file, and the problem that it must cause. */
type Break = readonly [path: string, from: string, to: string, problem: RegExp];

function catches(check: (read: Read) => string[], breaks: readonly Break[]): void {
  test.each(breaks)("in %s, %j as %j is found", (path, from, to, problem) => {
    const broken = changed(path, from, to);
    // A file that cannot be read at all causes an exception.
    const problemsText = (): string => {
      const problems = check(broken);
      throw new Error(problems.join("\n"));
    };
    expect(problemsText).toThrow(problem);
  });
}

describe("Dockerfile", () => {
  test("fits the repository and its configuration", () => expect(imageProblems(repository)).toEqual([]));

  catches(imageProblems, [
    ["Dockerfile", "USER 1000:1000\nEXPOSE 8080", "USER node\nEXPOSE 8080", /USER/],
    ["Dockerfile", "EXPOSE 8080 9090", "EXPOSE 8080", /EXPOSE/],
    ["Dockerfile", "/livez`", "/health`", /HEALTHCHECK/],
    [
      "Dockerfile",
      'CMD ["node", "--disable-sigusr1", "src/main.js"]',
      'CMD ["npm", "run", "serve"]',
      /CMD puts/,
    ],
    [
      "Dockerfile",
      'CMD ["node", "--disable-sigusr1", "src/main.js"]',
      'CMD ["node", "--disable-sigusr1", "src/start.ts"]',
      /CMD starts/,
    ],
    ["Dockerfile", '"--disable-sigusr1", "src/main.js"', '"--inspect", "src/main.js"', /SIGUSR1/],
    ["Dockerfile", "COPY --from=bundle /app/dist ./", "COPY src ./src", /more than the bundle/],
    ["Dockerfile", "COPY --from=bundle /app/dist ./", "COPY --from=bundle /app ./", /more than the bundle/],
    ["Dockerfile", "bin/npm ", "", /carries \/usr\/local\/bin\/npm/],
    ["Dockerfile", "cd ../usr/local && ", "", /carries \/usr\/local\/lib/],
    ["Dockerfile", "COPY lua ./lua", "COPY scripts ./lua", /COPY scripts/],
    ["Dockerfile", "ADMIN_HOST=0.0.0.0", "ADMINHOST=0.0.0.0", /no gateway reads ADMINHOST/],
    ["package.json", '"version": "', '"version": "9.', /VERSION/],
    [".dockerignore", "!lua", "", /COPY lua/],
    [".dockerignore", "*\n", "", /\.env is sent/],
  ]);

  test("its language is read as Docker reads it", () => {
    const [first, second] = parseDockerfile(
      "ARG A\nFROM a AS x\nRUN b \\\n  c\nFROM x\nCOPY --from=x /d ./d\n",
    );
    expect(first).toMatchObject({ name: "x", base: "a", steps: [{ keyword: "RUN", text: "b c" }] });
    expect(second?.steps).toEqual([{ keyword: "COPY", flags: { from: "x" }, text: "/d ./d" }]);
    expect(isInContext("config/a", "*\n!config\nconfig/a\n")).toBe(false);
    expect(isInContext("config/b", "*\n!config\nconfig/a\n")).toBe(true);
  });
});

describe("compose.yaml", () => {
  test("fits the repository and its configuration", () => expect(composeProblems(repository)).toEqual([]));

  catches(composeProblems, [
    ["compose.yaml", "stop_grace_period: 40s", "stop_grace_period: 30s", /less than the 36000 ms/],
    ["compose.yaml", "FALLBACK_STRATEGY: $", "STRATEGY: $", /no gateway reads STRATEGY/],
    ["compose.yaml", "{LOG_LEVEL:-}", "{LOG_LEVEL:-info}", /sets LOG_LEVEL/],
    ["compose.yaml", "redis://redis:", "redis://store:", /names store/],
    ["compose.yaml", "127.0.0.1:9090:9090", "9090:9090", /open to everybody/],
    ["compose.yaml", '"8080:8080"', '"8080:80"', /8080, which is not published/],
    ["compose.yaml", "- --appendonly yes", "- --appendonly no", /appendonly/],
    ["compose.yaml", "noeviction", "allkeys-lru", /noeviction/],
    ["compose.yaml", "redis:/data", "redis:/dat", /keeps its data/],
    ["compose.yaml", "./config/prometheus:", "./prometheus:", /prometheus is not there/],
    ["compose.yaml", "- journal:/app/.tollgate", "- journal:/data", /is on no volume/],
    ["compose.yaml", "dashboards/tollgate.json", "dashboards/other.json", /home/],
    ["compose.yaml", "--config.file=/etc/prometheus/", "--config.file=/etc/", /Prometheus reads/],
    ["config/prometheus/prometheus.yaml", "names: [gateway]", "names: [tollgate]", /asks tollgate:9090/],
    ["config/prometheus/prometheus.yaml", "- alerts.yaml", "- rules.yaml", /rules\.yaml, which is not there/],
    ["config/tollgate.yaml", "drain_timeout: 30s", "drain_timeout: 5m", /less than/],
    ["deploy/compose.env.example", "LOG_LEVEL=", "LEVEL=", /LOG_LEVEL/],
    ["deploy/grafana/datasource.yaml", "http://prometheus:", "http://localhost:", /localhost/],
    ["deploy/grafana/dashboards.yaml", "/var/lib/grafana/dashboards\n", "/dashboards\n", /dashboards/],
  ]);
});

describe("Kubernetes manifests", () => {
  test("fit the image and the configuration that they carry", () =>
    expect(kubernetesProblems(repository)).toEqual([]));

  catches(kubernetesProblems, [
    [`${K8S}/gateway.yaml`, "GracePeriodSeconds: 90", "GracePeriodSeconds: 75", /less than the 80000 ms/],
    [`${K8S}/configmap.yaml`, "drain_timeout: 65s", "drain_timeout: 30s", /cuts generations/],
    [`${K8S}/configmap.yaml`, "drain_delay: 10s", "drain_delay: 0s", /drain_delay/],
    [`${K8S}/configmap.yaml`, "trust_proxy", "trust_proxies", /trust_proxies/],
    [`${K8S}/configmap.yaml`, "/var/lib/tollgate/journal", "/tmp/journal", /journal dies/],
    [`${K8S}/configmap.yaml`, "tollgate.yaml: |", "config.yaml: |", /no such file/],
    [`${K8S}/gateway.yaml`, "runAsUser: 1000", "runAsUser: 0", /runAsUser/],
    [`${K8S}/gateway.yaml`, "path: /readyz", "path: /livez", /readiness probe/],
    [`${K8S}/gateway.yaml`, "containerPort: 9090", "containerPort: 9091", /other ports/],
    [`${K8S}/gateway.yaml`, "TOLLGATE_CONFIG", "TOLLGATE_CONF", /no gateway reads TOLLGATE_CONF\b/],
    [`${K8S}/gateway.yaml`, "enableServiceLinks: false", "enableServiceLinks: true", /variables of its own/],
    [`${K8S}/gateway.yaml`, "mountPath: /var/lib/tollgate", "mountPath: /data", /journal dies/],
    [`${K8S}/gateway.yaml`, "serviceName: tollgate-gateways", "serviceName: gateways", /serviceName/],
    [`${K8S}/secret.example.yaml`, "UPSTREAM_API_KEY", "UPSTREAM_KEY", /no gateway reads UPSTREAM_KEY/],
    [`${K8S}/secret.example.yaml`, "redis://redis:", "redis://store:", /no Service/],
    [`${K8S}/service.yaml`, "targetPort: http", "targetPort: admin", /customers/],
    [
      `${K8S}/service.yaml`,
      "name: tollgate\nspec:\n  selector:\n    app.kubernetes.io/name: tollgate",
      "name: tollgate\nspec:\n  selector:\n    app: x",
      /selects no gateway/,
    ],
    ["config/prometheus/prometheus.yaml", "[tollgate-gateways.", "[gateways.", /Service of the admin ports/],
    [
      `${K8S}/gateway.yaml`,
      "    spec:\n      # server",
      '      annotations: { prometheus.io/scrape: "true" }\n    spec:\n      # server',
      /another job/,
    ],
    [`${K8S}/disruption-budget.yaml`, "name: tollgate\nspec", "name: x\n  namespace: x\nspec", /namespace/],
    [`${K8S}/kustomization.yaml`, 'newTag: "', 'newTag: "9.', /version/],
    [`${K8S}/redis/redis.yaml`, "noeviction", "volatile-lru", /noeviction/],
  ]);

  test("each file is part of a kustomization, but for the example of the Secret", () => {
    for (const folder of ["", "/redis", "/redis-nodes", "/redis-sentinel", "/redis-cluster"].map(
      (name) => K8S + name,
    )) {
      const files = globSync("*.yaml", { cwd: join(ROOT, folder) });
      const [kustomization] = documents(repository, `${folder}/kustomization.yaml`);
      const patches: string[] = (kustomization.patches ?? []).map(({ path }: { path: string }) => path);
      const resources = [...kustomization.resources, ...patches].filter((name) => !name.startsWith(".."));
      const others = ["kustomization.yaml", ...(folder === K8S ? ["secret.example.yaml"] : [])];
      expect(files.sort()).toEqual([...resources, ...others].sort());
    }
  });
});

describe("several Redis", () => {
  test("the files of all three ways to start them fit each other", () =>
    expect(redisNodesProblems(repository)).toEqual([]));

  const SHARED = "deploy/redis";
  const COMPOSE = "deploy/compose";
  catches(redisNodesProblems, [
    [`${SHARED}/redis.conf`, "appendonly yes", "appendonly no", /appendonly/],
    [`${SHARED}/redis.conf`, "min-replicas-to-write 1", "min-replicas-to-write 0", /cut off takes writes/],
    [`${SHARED}/redis.conf`, "maxmemory 1gb", "maxmemory 2gb", /mem_limit/],
    [`${SHARED}/cluster.conf`, "node-timeout 5000", "node-timeout 15000", /restart precedes/],
    [`${SHARED}/start.sh`, "RESTART_DELAY:-15", "RESTART_DELAY:-1", /restart precedes/],
    [`${SHARED}/cluster.sh`, "360 1050", "360 1051", /other slots/],
    [`${SHARED}/users.acl`, "~tg:*", "~*", /more than their keys/],
    [`${SHARED}/users.acl`, "default off ~* &* +@all", "default off -@all", /loses scripts' writes/],
    [`${SHARED}/kustomization.yaml`, "cli.sh, ", "", /lacks a file/],
    [`${COMPOSE}/sentinel.yaml`, "HOST: 172.30.16.12", "HOST: 172.30.16.14", /has another address/],
    [`${COMPOSE}/sentinel.yaml`, "172.30.16.13\n#   cat", "\n#   cat", /16\.13 is not in the certificate/],
    [
      `${COMPOSE}/sentinel.yaml`,
      "rediss+sentinel://172.30.16.21",
      "rediss+sentinel://172.30.16.24",
      /names 172/,
    ],
    [`${COMPOSE}/sentinel.yaml`, "  redis-2: {}", "  redis-two: {}", /redis-2 keeps its data/],
    [`${COMPOSE}/cluster.yaml`, "rediss+cluster", "redis+cluster", /without TLS/],
    [`${COMPOSE}/cluster.yaml`, "172.30.16.16:6379", "172.30.16.17:6379", /NODES names other/],
    [`${K8S}/redis-cluster/redis.yaml`, "replicas: 6", "replicas: 5", /NODES names other/],
    [`${K8S}/redis-sentinel/redis.yaml`, "value: sentinel", "value: sentry", /starts as sentry/],
    [`${K8S}/redis-nodes/redis.yaml`, "$(POD).redis", "$(POD)", /redis-0 is not in the certificate/],
    ["deploy/systemd/tollgate-redis@.service", "start.sh\nEnv", "run.sh\nEnv", /no file of ours/],
  ]);
});

describe("a machine of its own", () => {
  test("the systemd unit fits the gateway", () => expect(unitProblems(repository)).toEqual([]));
  test("HAProxy's timeouts fit the gateway's", () => expect(haproxyProblems(repository)).toEqual([]));

  catches(unitProblems, [
    [UNIT, "TimeoutStopSec=45s", "TimeoutStopSec=30s", /less than/],
    [UNIT, "src/main.ts", "src/start.ts", /no file/],
    [UNIT, "--disable-sigusr1", "--inspect", /SIGUSR1/],
    [UNIT, "kill -HUP", "kill -TERM", /SIGHUP/],
    [
      UNIT,
      "WorkingDirectory=%S/tollgate",
      "WorkingDirectory=/opt/tollgate",
      /starts outside the StateDirectory/,
    ],
    [UNIT, "JOURNAL=%S/tollgate", "JOURNAL=/tmp", /journal is outside the StateDirectory/],
    [UNIT, "src/node-version.js", "src/version.js", /old Node/],
    [UNIT, "TOLLGATE_CONFIG=", "TOLLGATE_FILE=", /no gateway reads/],
    [UNIT, "prices/", "files", /head does not say where prices\//],
    [UNIT, "LockPersonality=yes", "MemoryDenyWriteExecute=yes", /V8/],
  ]);
  catches(haproxyProblems, [
    ["deploy/haproxy/haproxy.cfg", "timeout server 75s", "timeout server 50s", /gives up/],
    ["deploy/haproxy/haproxy.cfg", "http-keep-alive 30s", "http-keep-alive 70s", /idle/],
    ["deploy/haproxy/haproxy.cfg", "GET /readyz", "GET /ready", /path/],
    ["deploy/haproxy/haproxy.cfg", "inter 250ms", "inter 2s", /too late/],
    ["deploy/haproxy/haproxy.cfg", "TOLLGATE_2_ADMIN=", "ADMIN_2=", /every variable/],
    ["deploy/haproxy/haproxy.cfg", "retry-on conn-failure", "retry-on all-retryable-errors", /twice/],
  ]);
});

describe("docs/operations", () => {
  test("has a section for each alert, and each alert leads to it", () =>
    expect(guideProblems(repository)).toEqual([]));

  catches(guideProblems, [
    [
      "docs/operations/alerts-redis.md",
      "### TollgateStoreSlow",
      "### StoreSlow",
      /no section for TollgateStoreSlow/,
    ],
    ["config/prometheus/alerts.yaml", "alert: TollgateDown", "alert: TollgateGone", /no alert TollgateDown/],
    ["config/prometheus/alerts.yaml", "#tollgatedown", "#gone", /TollgateDown sends/],
  ]);
});

describe("the example for Alertmanager", () => {
  const silenced = (read: Read): string[] => {
    const [alertmanager] = documents(read, "config/prometheus/alertmanager.yaml");
    const [alerts] = documents(read, "config/prometheus/alerts.yaml");
    const known = new Set<string>(
      alerts.groups.flatMap(({ rules }: { rules: { alert: string }[] }) => rules.map(({ alert }) => alert)),
    );
    const matchers: string[] = alertmanager.inhibit_rules.flatMap(
      (rule: { source_matchers: string[]; target_matchers: string[] }) => [
        ...rule.source_matchers,
        ...rule.target_matchers,
      ],
    );
    return matchers.flatMap((text) => text.match(/Tollgate\w+/g) ?? []).filter((name) => !known.has(name));
  };

  test("names only alerts that there are", () => expect(silenced(repository)).toEqual([]));
  test("an alert that was renamed is found", () =>
    expect(
      silenced(changed("config/prometheus/alerts.yaml", "alert: TollgateStuckTasks", "alert: X")),
    ).toContain("TollgateStuckTasks"));
  test("silences no alert about lost money", () => {
    const [{ inhibit_rules: rules }] = documents(repository, "config/prometheus/alertmanager.yaml");
    const causes = rules.filter(({ equal }: { equal?: string[] }) => equal === undefined);
    const targets = JSON.stringify(
      causes.map(({ target_matchers: matchers }: { target_matchers: string[] }) => matchers),
    );
    for (const alert of [
      "TollgateLedgerDrift",
      "TollgateUncollected",
      "TollgateTwoPrimaries",
      "TollgateJournalUnusable",
    ])
      expect(targets).not.toContain(alert);
  });
});

test("a YAML file with a key given twice is refused", () => {
  const twice: Read = () => "a: 1\na: 2\n";
  expect(() => documents(twice, "x.yaml")).toThrow(/x\.yaml.*unique/);
});

// Guarantee: an operator who opens the admin port by its name is not answered with 421.
describe("the names of the admin port", () => {
  const shipped = readdirSync(join(ROOT, "deploy")).map((name) => `deploy/${name}`);
  const problems = (read: Read): string[] => adminHostsProblems(read, shipped);

  test("are set by everything that is shipped", () => expect(problems(repository)).toEqual([]));
  test("a deployment that is new must say them", () =>
    expect(adminHostsProblems(repository, [...shipped, "deploy/nomad"])).toEqual([
      "deploy/nomad: says nothing of ADMIN_HOSTS",
    ]));

  catches(problems, [
    ["README.md", "ADMIN_HOSTS=tollgate", "ADMIN_HOSTS=gateway", /README/],
    ["compose.yaml", "ADMIN_HOSTS: $", "ADMIN_HOST: $", /compose\.yaml/],
    ["deploy/compose.env.example", "ADMIN_HOSTS=gateway", "ADMIN_HOSTS=", /names no service/],
    ["deploy/compose/cluster.yaml", "NODE_EXTRA_CA_CERTS:", "ADMIN_HOSTS:", /replaces/],
    [`${K8S}/configmap.yaml`, "hosts: [tollgate-gateways, ", "hosts: [tollgate, ", /kubernetes: lacks/],
    [`${K8S}/service.yaml`, "name: tollgate-gateways", "name: tollgate-admin", /kubernetes: lacks/],
    ["deploy/helm/templates/configmap.yaml", "concat $own", "concat (list)", /helm: lacks/],
    [UNIT, " ADMIN_HOSTS=%H", "", /systemd: lacks/],
    ["deploy/haproxy/haproxy.cfg", 'TOLLGATE_1}" port', 'TOLLGATE_1_ADMIN}" port', /haproxy: leads/],
    ["deploy/nginx/nginx.conf", "10.0.0.11:8080", "10.0.0.11:9090", /nginx: leads/],
  ]);
});
