import fc from "fast-check";
import { expect, test } from "vitest";
import { isHttpsUrl, isOnSourceHost, isWebUrl } from "../../../src/core/urls.ts";

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
