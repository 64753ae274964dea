import { expect, test } from "vitest";
import { defaultConfig } from "../../../src/config/config.ts";
import { certificateValidities } from "../../../src/config/tls.ts";
import { selfSignedCertificate } from "../../../src/sandbox/generator/server.ts";

const DAY_MS = 86_400_000;
const { config } = defaultConfig();
const expiriesInDays = (changed: Partial<typeof config>): Record<string, number> =>
  Object.fromEntries(
    certificateValidities({ ...config, ...changed }).map(({ setting, expiryMs }) => [
      setting,
      Math.round((expiryMs - Date.now()) / DAY_MS),
    ]),
  );
const pem = (...days: number[]): string => days.map((each) => selfSignedCertificate(each).cert).join("\n");

test("a chain is valid until its first certificate expires, authorities until their last does", () => {
  expect(expiriesInDays({})).toEqual({});
  const tls = { cert: pem(90, 20), key: "", clientCa: pem(3, 60) };
  expect(
    expiriesInDays({
      server: { ...config.server, tls },
      store: { ...config.store, tlsCa: pem(-1, 30) },
      upstream: { ...config.upstream, tlsCa: pem(-2) },
    }),
  ).toEqual({ "server.tls.cert": 20, "server.tls.client_ca": 60, "store.tls_ca": 30, "upstream.tls_ca": -2 });
});
