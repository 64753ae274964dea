import { describe, expect, test } from "vitest";
import type { GenerationEndpoint } from "../../../src/domain/endpoints.ts";
import { parseJson } from "../../../src/domain/json.ts";
import { BODIES } from "../../../src/domain/schemas.ts";
import {
  ALL,
  accepts,
  changed,
  HOST,
  I2V,
  IMAGE,
  MINIMAL,
  PRO_I2V,
  PRO_T2V,
  problems,
  refuses,
  SMILE,
  STORYBOARD,
  sent,
  T2V,
  validate,
  WATERMARK,
} from "./generation-stage.ts";

describe("what goes upstream", () => {
  const EXPECTED: Record<GenerationEndpoint, unknown> = {
    [T2V]: { prompt: "a", aspectRatio: "16:9" },
    [I2V]: { imageUrl: IMAGE },
    [PRO_T2V]: { prompt: "a", duration: 10, quality: "standard" },
    [PRO_I2V]: { imageUrl: IMAGE, duration: 10, quality: "standard" },
    [WATERMARK]: { videoUrl: `${HOST}/v.mp4` },
    [STORYBOARD]: { nFrames: "10", shots: [{ Scene: "a", duration: 10 }], aspectRatio: "landscape" },
  };

  test.each(ALL)("%s: exactly what was given, with the API's defaults written out", (endpoint) => {
    expect(sent(endpoint, MINIMAL[endpoint])).toEqual(EXPECTED[endpoint]);
  });

  test.each(ALL)(
    "%s: null for what is optional is nothing, and for what is required a mistake",
    (endpoint) => {
      const properties = Object.keys(BODIES[endpoint].properties);
      const nulls = Object.fromEntries(properties.map((name) => [name, null]));
      expect(sent(endpoint, { ...nulls, ...MINIMAL[endpoint] })).toEqual(EXPECTED[endpoint]);
      for (const required of Object.keys(MINIMAL[endpoint]))
        refuses(endpoint, { [required]: null }, `/${required}`);
      expect(problems(endpoint, { ...nulls, ...MINIMAL[endpoint], unheardOf: null })).toHaveLength(1);
    },
  );

  test.each(ALL)("%s: what is given is sent as it is, and what is sent is accepted again", (endpoint) => {
    const full: Record<GenerationEndpoint, Record<string, unknown>> = {
      [T2V]: { prompt: " ä\n", negativePrompt: "", aspectRatio: "1:1" },
      [I2V]: { imageUrl: IMAGE, prompt: "", negativePrompt: "n", aspectRatio: "9:16" },
      [PRO_T2V]: { prompt: "a", negativePrompt: "n", aspectRatio: "16:9", duration: 15, quality: "high" },
      [PRO_I2V]: { imageUrl: IMAGE, prompt: "p", aspectRatio: "1:1", duration: 15, quality: "high" },
      [WATERMARK]: { videoUrl: `${HOST}/a/b?c#d` },
      [STORYBOARD]: {
        nFrames: "25",
        shots: [
          { Scene: "a", duration: 12.5 },
          { Scene: SMILE, duration: 12.5 },
        ],
        aspectRatio: "square",
        imageUrls: [IMAGE, "http://b.example/x"],
        callBackUrl: "http://c.example/hook",
      },
    };
    expect(sent(endpoint, full[endpoint])).toEqual(full[endpoint]);
    expect(sent(endpoint, sent(endpoint, full[endpoint]))).toEqual(full[endpoint]);
  });

  test("the order of the client's parameters has no part in it", () => {
    const one = validate(PRO_T2V, { prompt: "a", quality: "high", duration: 15 });
    const other = validate(PRO_T2V, { duration: 15, prompt: "a", quality: "high" });
    expect(one).toEqual(other);
    const board = validate(STORYBOARD, { shots: [{ Scene: "a", duration: 10 }], nFrames: "10" });
    expect(validate(STORYBOARD, { nFrames: "10", shots: [{ duration: 10, Scene: "a" }] })).toEqual(board);
    expect(board).toMatchObject({ text: expect.stringContaining('[{"Scene":"a","duration":10}]') });
  });

  test.each(["10.0", "1e1", "100E-1"])("duration %s is the number 10 and goes out as 10", (number) => {
    const parsed = parseJson(`{"prompt":"a","duration":${number}}`);
    expect(parsed.ok && validate(PRO_T2V, parsed.value)).toMatchObject({
      text: '{"prompt":"a","duration":10,"quality":"standard"}',
    });
  });
});

describe("bodies of the wrong shape", () => {
  test.each(ALL)("%s takes an object only", (endpoint) => {
    for (const body of [null, [], [MINIMAL[endpoint]], "a", 1, true, undefined])
      expect(problems(endpoint, body), JSON.stringify(body)).toEqual([": the body must be an object"]);
  });

  test.each([
    [T2V, "prompt"],
    [I2V, "imageUrl"],
    [PRO_T2V, "prompt"],
    [PRO_I2V, "imageUrl"],
    [WATERMARK, "videoUrl"],
    [STORYBOARD, "nFrames"],
    [STORYBOARD, "shots"],
  ] as const)("%s requires %s", (endpoint, name) => {
    expect(problems(endpoint, changed(endpoint, { [name]: undefined }))).toEqual([
      `/${name}: ${name} is required`,
    ]);
  });

  test.each([
    [T2V, "prompt"],
    [T2V, "negativePrompt"],
    [I2V, "prompt"],
    [I2V, "imageUrl"],
    [PRO_T2V, "prompt"],
    [PRO_I2V, "imageUrl"],
    [PRO_I2V, "prompt"],
    [WATERMARK, "videoUrl"],
    [STORYBOARD, "callBackUrl"],
  ] as const)("%s: %s is a string", (endpoint, name) => {
    for (const value of [1, true, {}, [], ["a"]]) refuses(endpoint, { [name]: value }, `/${name}`);
  });
});

describe("unknown parameters", () => {
  test.each([
    [T2V, "promt", "prompt"],
    [T2V, "negative_prompt", "negativePrompt"],
    [I2V, "imageURL", "imageUrl"],
    [PRO_T2V, "durations", "duration"],
    [STORYBOARD, "callbackUrl", "callBackUrl"],
    [STORYBOARD, "n_frames", "nFrames"],
  ] as const)("%s: %s is refused, and %s suggested", (endpoint, name, meant) => {
    expect(problems(endpoint, changed(endpoint, { [name]: "x" }))).toEqual([
      `/${name}: ${name} is not a known parameter; did you mean ${meant}?`,
    ]);
  });

  test("nothing is suggested where nothing is near", () => {
    expect(problems(T2V, changed(T2V, { seed: 1 }))).toEqual(["/seed: seed is not a known parameter"]);
  });

  test.each([
    [T2V, "duration", 10],
    [T2V, "videoUrl", "https://evil.example/"],
    [I2V, "quality", "high"],
    [PRO_T2V, "imageUrl", IMAGE],
    [PRO_I2V, "callBackUrl", IMAGE],
    [WATERMARK, "prompt", "a"],
    [WATERMARK, "aspectRatio", "1:1"],
    [STORYBOARD, "duration", 10],
  ] as const)("%s: another endpoint's %s is unknown here, and only that is said", (endpoint, name, value) => {
    refuses(endpoint, { [name]: value }, `/${name}`);
  });

  test("storyboard rules stay with the storyboard", () => {
    const found = problems(T2V, { prompt: "a", nFrames: "10", shots: [] });
    expect(found.map((problem) => problem.split(": ")[0]).sort()).toEqual(["/nFrames", "/shots"]);
  });

  test.each(["__proto__", "constructor", "toString", "hasOwnProperty", ""])(
    "%j is a name like any other",
    (name) => {
      const parsed = parseJson(`{"prompt":"a","${name}":{"aspectRatio":"1:1"}}`);
      expect(parsed.ok).toBe(true);
      const result = validate(T2V, parsed.ok && parsed.value);
      expect(result).toMatchObject({ ok: false, problems: [{ path: `/${name}` }] });
      const shot = parseJson(`{"nFrames":"10","shots":[{"Scene":"a","duration":10,"${name}":1}]}`);
      expect(validate(STORYBOARD, shot.ok && shot.value)).toMatchObject({
        ok: false,
        problems: [{ path: `/shots/0/${name}` }],
      });
    },
  );

  test("a __proto__ in the body changes no other object", () => {
    const parsed = parseJson('{"__proto__":{"prompt":"a","polluted":1},"prompt":"a"}');
    validate(T2V, parsed.ok && parsed.value);
    expect(({} as { polluted?: number }).polluted).toBeUndefined();
    const inherited = parseJson('{"__proto__":{"prompt":"a"}}');
    expect(problems(T2V, inherited.ok && inherited.value).join()).toContain("prompt is required");
  });
});

test("all problems are reported at once", () => {
  const found = problems(PRO_I2V, {
    imageUrl: "x",
    duration: "10",
    quality: "low",
    aspectRatio: "4:3",
    sed: 1,
  });
  expect(found.map((problem) => problem.split(": ")[0]).sort()).toEqual(
    ["/aspectRatio", "/duration", "/imageUrl", "/quality", "/sed"].sort(),
  );
  for (const problem of found) expect(problem).toMatch(/^\/(\w+): \1 /);
});

test("a body of nothing but mistakes is answered with a bounded list", () => {
  const body = Object.fromEntries(Array.from({ length: 5000 }, (_, n) => [`x${n}`, n]));
  const many = validate(T2V, body);
  expect(many.ok).toBe(false);
  const shots = Array.from({ length: 5000 }, () => ({ Scene: 1, duration: "x", y: 1 }));
  for (const result of [many, validate(STORYBOARD, { nFrames: "10", shots })])
    expect(JSON.stringify(result).length).toBeLessThan(64 * 1024);
});

describe("ill-formed Unicode", () => {
  test.each(["\ud800", "a\udc00", "\ude00\ud83d"])(
    "half a surrogate pair (%j) is refused, wherever it stands",
    (text) => {
      refuses(T2V, { prompt: text }, "/prompt");
      refuses(T2V, { negativePrompt: text }, "/negativePrompt");
      refuses(STORYBOARD, { shots: [{ Scene: text, duration: 10 }] }, "/shots/0/Scene");
      expect(problems(I2V, { imageUrl: `https://a.example/${text}` })).not.toEqual([]);
    },
  );

  test.each([`${"a".repeat(99)}${SMILE}`, "\ud800", "a\udc00"])(
    "an unknown name (%j) goes into the answer without half a pair",
    (name) => {
      const inShot = { shots: [{ Scene: "a", duration: 10, [name]: 1 }] };
      const found = [
        ...problems(T2V, changed(T2V, { [name]: 1 })),
        ...problems(STORYBOARD, changed(STORYBOARD, inShot)),
      ];
      expect(found).toHaveLength(2);
      for (const problem of found) {
        expect(problem).toContain("\ufffd is not a known parameter");
        expect(problem.isWellFormed()).toBe(true);
      }
    },
  );

  test("a whole pair passes, also next to what only looks like an escape", () => {
    accepts(T2V, { prompt: SMILE });
    accepts(T2V, { prompt: "\\ud800 \\\\udc00" });
  });
});
