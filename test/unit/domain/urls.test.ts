import fc from "fast-check";
import { expect, test } from "vitest";
import { isHttpsUrl, isOnSourceHost, isWebUrl } from "../../../src/domain/urls.ts";

const HOST = "https://videos.example.com";

test("whatever passes is read by URL as it is written: same scheme, and the host stands in the text", () => {
  fc.assert(
    fc.property(fc.webUrl({ withFragments: true, withQueryParameters: true }), (url) => {
      expect(isWebUrl(url)).toBe(true);
      expect(isHttpsUrl(url)).toBe(url.startsWith("https:"));
    }),
  );
  const noise = fc.string({ unit: fc.constantFrom(..."htps:/\\@.a1 \t\n?#[]%"), maxLength: 20 });
  fc.assert(
    fc.property(noise, (tail) => {
      const url = `https:${tail}`;
      if (!isWebUrl(url)) return;
      expect(new URL(url).protocol).toBe("https:");
      expect(tail.startsWith("//")).toBe(true);
      expect(url).not.toMatch(/[\s\\]/);
    }),
    { numRuns: 2000 },
  );
});

test.each([
  "https://a.example:65535/x",
  "https://a.example:/x",
  "https://user:pw@a.example/x",
  "https://my_bucket.s3.a-b.example./x?y#z",
  'https://b\u00fccher.example/k\u00e4se|{}^"<>`.png',
  "http://localhost",
  "http://127.0.0.1:4010/v.mp4",
  "https://[2001:db8::7]:8443/x",
  "https://[::]",
  "https://[1:2:3:4:5:6:7:8]/",
  "https://[1:2:3:4:5:6:7::]/",
  "https://a.example?x",
  "https://a.example#x",
  "https://B\u00dcCHER.example/",
  "https://xn--bcher-kva.example/",
  "https://fa\u00df.example/",
  "https://\u65e5\u672c\u8a9e.example/",
])("%s is well-formed, also to URL", (url) => {
  expect(isWebUrl(url)).toBe(true);
  expect(URL.canParse(url)).toBe(true);
});

test.each([
  "https://a.example:65536/",
  "https://a.example:x/",
  "https://256.1.1.1/",
  "https://1.2.3.4.5/",
  "https://1.2/",
  "https://0x7f.1/",
  "https://a.1/",
  "https://[::1/",
  "https://[1:2:3:4:5:6:7:8:9]/",
  "https://[1::2::3]/",
  "https://[::g]/",
  "https://a%2eexample/",
  "https://a<b/",
  "https://a^b/",
  "https://.a/",
  "https://a@b@c/",
  "https://a.example/\u007f",
  "https://\u00ad/",
  "https://a\u00adb.example/",
  "https://\uff45xample.com/",
  "https://user@\uff45xample.com:443/",
  "https://ex\u3002ample.com/",
  "https://\u2167.example/",
  "https://a\u200db.example/",
  "https://xn--a/",
  "https://www.xn--zzzzzzzz99999.example/",
])("%s is not", (url) => expect(isWebUrl(url)).toBe(false));

test("whatever names an address of ASCII letters is read by URL, too", () => {
  const host = fc.string({ unit: fc.constantFrom(..."a1-_.:@[]%xf0"), maxLength: 20 });
  fc.assert(
    fc.property(host, (text) => {
      const url = `https://${text}/`;
      // The letters behind xn-- are Punycode, which no pattern can read.
      if (isWebUrl(url) && !/xn--/.test(text)) expect(URL.canParse(url), url).toBe(true);
    }),
    { numRuns: 20_000 },
  );
});

test("nothing that begins with the source host leads anywhere else", () => {
  const tail = fc.string({ unit: fc.constantFrom(..."/\\@.:a1 \t?#%evil"), maxLength: 20 });
  fc.assert(
    fc.property(tail, (rest) => {
      const url = HOST + rest;
      if (!isOnSourceHost(url, HOST)) return;
      expect(rest.startsWith("/")).toBe(true);
      expect(new URL(url).host).toBe("videos.example.com");
      expect(new URL(url).username).toBe("");
    }),
    { numRuns: 2000 },
  );
});

test("a source host with a port is compared with its port", () => {
  const host = "http://127.0.0.1:4010";
  expect(isOnSourceHost(`${host}/v.mp4`, host)).toBe(true);
  expect(isOnSourceHost("http://127.0.0.1:40100/v.mp4", host)).toBe(false);
  expect(isOnSourceHost("http://127.0.0.1/v.mp4", host)).toBe(false);
});

test("a host is no longer than DNS allows, so that no address keeps the process busy", () => {
  const label = "a".repeat(63);
  const longest = `${label}.${label}.${label}.${"a".repeat(61)}`;
  expect(isWebUrl(`https://${longest}/`)).toBe(true);
  expect(isWebUrl(`https://${longest}./`)).toBe(true);
  expect(isWebUrl(`https://${longest}aa/`)).toBe(false);
  // 5,000 letters that all differ: each took 0.2 s, and one body had seventeen such addresses.
  const letters = String.fromCharCode(...Array.from({ length: 5000 }, (_, at) => 0x4e00 + at));
  const fromMs = performance.now();
  for (let times = 0; times < 17; times++) expect(isWebUrl(`https://${letters}.example/`)).toBe(false);
  expect(performance.now() - fromMs).toBeLessThan(500);
});
