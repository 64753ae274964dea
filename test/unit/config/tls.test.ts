import { generateKeyPairSync } from "node:crypto";
import { expect, test } from "vitest";
import { redact } from "../../../src/config/config.ts";
import { selfSignedCertificate } from "../../../src/sandbox/generator/server.ts";
import { loadConfig } from "../../support/load-config.ts";
import { errorOf, givenFiles } from "./support.ts";

const PAIR = selfSignedCertificate();
const ENCRYPTED = generateKeyPairSync("ec", { namedCurve: "P-256" }).privateKey.export({
  type: "pkcs8",
  format: "pem",
  cipher: "aes-256-cbc",
  passphrase: "secret",
}) as string;

const load = (files: Record<string, string>, tls: string, section = "server") =>
  loadConfig({ env: {}, file: givenFiles({ "tollgate.yaml": `${section}:\n  tls: ${tls}\n`, ...files }) });

test.each(["server", "admin"] as const)(
  "%s.tls is read, and neither key nor certificate is shown whole",
  (section) => {
    const files = { "c.pem": PAIR.cert, "k.pem": PAIR.key, "ca.pem": PAIR.cert };
    const config = load(files, "{ cert: c.pem, key: k.pem, client_ca: ca.pem }", section);
    expect(config[section].tls).toEqual({ cert: PAIR.cert, key: PAIR.key, clientCa: PAIR.cert });
    const shown = redact(config)[section].tls;
    expect(shown).toMatchObject({
      cert: expect.stringMatching(/localhost.*valid until.*SHA-256/),
      key: "***",
    });
  },
);

// A mistake must be found by `config check`, not by the first customer.
test.each<[what: string, files: Record<string, string>, tls: string, problem: string]>([
  [
    "no such file",
    { "k.pem": PAIR.key },
    "{ cert: c.pem, key: k.pem }",
    "server.tls.cert: c.pem cannot be read: there is no such file; a relative path begins at the config file's folder",
  ],
  [
    "a folder",
    { "c.pem": PAIR.cert },
    "{ cert: c.pem, key: . }",
    "server.tls.key: . cannot be read: it is a folder; a relative path begins at the config file's folder",
  ],
  [
    "no certificate",
    { "c.pem": PAIR.key, "k.pem": PAIR.key },
    "{ cert: c.pem, key: k.pem }",
    "server.tls.cert: c.pem holds no certificate in PEM",
  ],
  [
    "no key",
    { "c.pem": PAIR.cert, "k.pem": "" },
    "{ cert: c.pem, key: k.pem }",
    "server.tls.key: k.pem holds no private key in PEM",
  ],
  [
    "an encrypted key",
    { "c.pem": PAIR.cert, "k.pem": ENCRYPTED },
    "{ cert: c.pem, key: k.pem }",
    "server.tls.key: k.pem is encrypted; a key without a passphrase is needed",
  ],
  [
    "another's key",
    { "c.pem": PAIR.cert, "k.pem": selfSignedCertificate().key },
    "{ cert: c.pem, key: k.pem }",
    "server.tls.key: k.pem is not the key of the first certificate in c.pem",
  ],
  [
    "no client certificates",
    { "c.pem": PAIR.cert, "k.pem": PAIR.key, "ca.pem": "x" },
    "{ cert: c.pem, key: k.pem, client_ca: ca.pem }",
    "server.tls.client_ca: ca.pem holds no certificate in PEM",
  ],
])("%s is named with its file and its setting", (_, files, tls, problem) => {
  const { problems } = errorOf(() => load(files, tls));
  expect(problems.map(({ path, message, line }) => ({ path, message, line }))).toEqual([
    { path: problem.split(": ")[0], message: problem.slice(problem.indexOf(": ") + 2), line: 2 },
  ]);
});
