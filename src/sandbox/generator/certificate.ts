import { generateKeyPairSync, randomBytes, sign } from "node:crypto";

const DAY_MS = 86_400_000;

function der(tag: number, ...parts: Buffer[]): Buffer {
  const content = Buffer.concat(parts);
  if (content.length < 128) return Buffer.concat([Buffer.from([tag, content.length]), content]);
  return Buffer.concat([Buffer.from([tag, 0x82, content.length >> 8, content.length & 255]), content]);
}

const sequence = (...parts: Buffer[]) => der(0x30, ...parts);
const oid = (hex: string) => der(0x06, Buffer.from(hex, "hex"));
const time = (ms: number) => {
  const digits = new Date(ms).toISOString().replace(/[-:T]/g, "");
  return der(0x17, Buffer.from(`${digits.slice(2, 14)}Z`));
};

/** A self-signed certificate for localhost, made at each start. RFC 5280. */
export function selfSignedCertificate(validDays = 365): { key: string; cert: string } {
  const { privateKey, publicKey } = generateKeyPairSync("ec", { namedCurve: "P-256" });
  const ecdsaWithSha256 = sequence(oid("2a8648ce3d040302"));
  const name = sequence(der(0x31, sequence(oid("550403"), der(0x0c, Buffer.from("tollgate sandbox")))));
  const hosts = sequence(der(0x82, Buffer.from("localhost")), der(0x87, Buffer.from([127, 0, 0, 1])));
  const alternativeNames = sequence(oid("551d11"), der(0x04, hosts));
  const body = sequence(
    der(0xa0, der(0x02, Buffer.from([2]))),
    der(0x02, Buffer.concat([Buffer.from([1]), randomBytes(8)])),
    ecdsaWithSha256,
    name,
    sequence(time(Date.now() - DAY_MS), time(Date.now() + validDays * DAY_MS)),
    name,
    publicKey.export({ type: "spki", format: "der" }),
    der(0xa3, sequence(alternativeNames)),
  );
  const signature = der(0x03, Buffer.from([0]), sign("sha256", body, privateKey));
  const base64 = sequence(body, ecdsaWithSha256, signature).toString("base64");
  const lines = base64.match(/.{1,64}/g)!.join("\n");
  return {
    key: privateKey.export({ type: "pkcs8", format: "pem" }).toString(),
    cert: `-----BEGIN CERTIFICATE-----\n${lines}\n-----END CERTIFICATE-----\n`,
  };
}
