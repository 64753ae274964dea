import { documents, type Manifest, type Read, text } from "./settings.ts";

type Rule = readonly [holds: boolean, problem: string];

/** By what is shipped: how it tells a gateway the names of its admin port, or that it leads nobody there. */
const DEPLOYMENTS: Readonly<Record<string, (read: Read) => Rule[]>> = {
  "README.md": (read) => {
    const [, run = ""] = /docker run ([^`]*)/.exec(text(read, "README.md")) ?? [];
    const name = /--name (\S+)/.exec(run)?.[1];
    return [[run.includes(`ADMIN_HOSTS=${name} `), "the container's own name leads to 421"]];
  },
  "compose.yaml": (read) => {
    const [compose] = documents(read, "compose.yaml");
    return [
      [compose.services.gateway.environment.ADMIN_HOSTS === "$" + "{ADMIN_HOSTS:-}", "sets no ADMIN_HOSTS"],
    ];
  },
  "deploy/compose.env.example": (read) => {
    const [, names = ""] = /^ADMIN_HOSTS=(.*)$/m.exec(text(read, "deploy/compose.env.example")) ?? [];
    const { services } = documents(read, "compose.yaml")[0];
    return [[names.split(",").some((name) => name in services), "names no service"]];
  },
  "deploy/compose": (read) =>
    ["cluster", "sentinel"].map((name): Rule => {
      const [{ services }] = documents(read, `deploy/compose/${name}.yaml`);
      return [!("ADMIN_HOSTS" in services.gateway.environment), `${name} replaces ADMIN_HOSTS`];
    }),
  "deploy/kubernetes": (read) => {
    const service = documents(read, "deploy/kubernetes/service.yaml").find(({ spec }: Manifest) =>
      spec.ports.some(({ targetPort }: Manifest) => targetPort === "admin"),
    );
    const [{ data }] = documents(read, "deploy/kubernetes/configmap.yaml");
    const config: Read = () => data["tollgate.yaml"];
    const hosts: string[] = documents(config, "tollgate.yaml")[0].admin?.hosts ?? [];
    return [[hosts.includes(service.metadata.name), "lacks the Service of the admin port"]];
  },
  "deploy/helm": (read) => [
    [
      /merge \(dict "hosts" \(concat \$own /.test(text(read, "deploy/helm/templates/configmap.yaml")),
      "lacks the Service of the admin port",
    ],
  ],
  "deploy/systemd": (read) => [
    [
      /^Environment=.* ADMIN_HOSTS=%H$/m.test(text(read, "deploy/systemd/tollgate.service")),
      "lacks the name of the machine",
    ],
  ],
  // Only its check goes to the admin port, for /readyz, which has no such names.
  "deploy/haproxy": (read) => [
    [
      /^ *server /m.test(text(read, "deploy/haproxy/haproxy.cfg")) &&
        !/^ *(server \S+|bind) "\$\{\w+_ADMIN\}"/m.test(text(read, "deploy/haproxy/haproxy.cfg")),
      "leads to the admin port",
    ],
  ],
  "deploy/nginx": (read) => [
    [!text(read, "deploy/nginx/nginx.conf").includes(":9090"), "leads to the admin port"],
  ],
  // Without a gateway.
  "deploy/grafana": () => [],
  "deploy/redis": () => [],
};

/** Shipped deployments whose admin port would answer its own name with 421. @param shipped what there is */
export function adminHostsProblems(read: Read, shipped: readonly string[]): string[] {
  return [
    ...shipped.filter((path) => !(path in DEPLOYMENTS)).map((path) => `${path}: says nothing of ADMIN_HOSTS`),
    ...Object.entries(DEPLOYMENTS).flatMap(([path, rules]) =>
      rules(read)
        .filter(([holds]) => !holds)
        .map(([, problem]) => `${path}: ${problem}`),
    ),
  ];
}
