import { describe, expect, test } from "vitest";
import type { GenerationEndpoint } from "../../../src/core/endpoints.ts";
import { validateGeneration } from "../../../src/core/generation.ts";
import { parseJson } from "../../../src/core/json.ts";

const HOST = "https://videos.example.com";
const SMILE = "\u{1F600}";

const T2V = "gen2/text-to-video";
const I2V = "gen2/image-to-video";
const PRO_T2V = "gen2-pro/text-to-video";
const PRO_I2V = "gen2-pro/image-to-video";
const WATERMARK = "gen2/watermark-remove";
const STORYBOARD = "gen2-pro/storyboard";

const IMAGE = "https://images.example.com/cat.png";
/** The smallest body that each endpoint accepts. */
const MINIMAL: Record<GenerationEndpoint, Record<string, unknown>> = {
  [T2V]: { prompt: "a" },
  [I2V]: { imageUrl: IMAGE },
  [PRO_T2V]: { prompt: "a" },
  [PRO_I2V]: { imageUrl: IMAGE },
  [WATERMARK]: { videoUrl: `${HOST}/v.mp4` },
  [STORYBOARD]: { nFrames: "10", shots: [{ Scene: "a", duration: 10 }] },
};

function validate(endpoint: GenerationEndpoint, body: unknown) {
  return validateGeneration(endpoint, body, HOST);
}

/** What goes upstream. */
function sent(endpoint: GenerationEndpoint, body: unknown): unknown {
  const result = validate(endpoint, body);
  if (!result.ok) throw new Error(`refused: ${JSON.stringify(result.problems)}`);
  return JSON.parse(result.text);
}

/** Path and message of all problems, as "path: message". */
function problems(endpoint: GenerationEndpoint, body: unknown): string[] {
  const result = validate(endpoint, body);
  return result.ok ? [] : result.problems.map(({ path, message }) => `${path}: ${message}`);
}

/** The minimal body with changes; undefined removes a parameter. */
function changed(endpoint: GenerationEndpoint, changes: Record<string, unknown>): Record<string, unknown> {
  const body: Record<string, unknown> = { ...MINIMAL[endpoint], ...changes };
  for (const [name, value] of Object.entries(body)) if (value === undefined) delete body[name];
  return body;
}

const accepts = (endpoint: GenerationEndpoint, changes: Record<string, unknown>): void =>
  expect(problems(endpoint, changed(endpoint, changes))).toEqual([]);

/** Exactly one problem, at this path. */
function refuses(endpoint: GenerationEndpoint, changes: Record<string, unknown>, path: string): void {
  const found = problems(endpoint, changed(endpoint, changes));
  expect(found.map((problem) => problem.split(": ")[0])).toEqual([path]);
}

const ALL = Object.keys(MINIMAL) as GenerationEndpoint[];

describe("what goes upstream", () => {
  const EXPECTED: Record<GenerationEndpoint, unknown> = {
    [T2V]: { prompt: "a", aspectRatio: "16:9" },
    [I2V]: { imageUrl: IMAGE },
    [PRO_T2V]: { prompt: "a", duration: 10, quality: "standard" },
    [PRO_I2V]: { imageUrl: IMAGE, duration: 10, quality: "standard" },
    [WATERMARK]: { videoUrl: `${HOST}/v.mp4` },
    [STORYBOARD]: { nFrames: "10", shots: [{ Scene: "a", duration: 10 }], aspectRatio: "landscape" },
  };

  test.each(ALL)("%s: exactly what was given, with the spec's defaults written out", (endpoint) => {
    expect(sent(endpoint, MINIMAL[endpoint])).toEqual(EXPECTED[endpoint]);
  });

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

  test.each(ALL)("%s: null is no value for any of its parameters", (endpoint) => {
    const names = ["prompt", "negativePrompt", "aspectRatio", "imageUrl", "videoUrl", "duration", "quality"];
    for (const name of [...names, "nFrames", "shots", "imageUrls", "callBackUrl"])
      expect(problems(endpoint, { ...MINIMAL[endpoint], [name]: null }), name).not.toEqual([]);
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

describe("prompt", () => {
  test("gen2 text-to-video takes 2000 characters and not one more", () => {
    accepts(T2V, { prompt: "a".repeat(2000) });
    refuses(T2V, { prompt: "a".repeat(2001) }, "/prompt");
  });

  test("characters are code points: 2000 emoji pass, 2001 do not", () => {
    accepts(T2V, { prompt: SMILE.repeat(2000) });
    refuses(T2V, { prompt: SMILE.repeat(2001) }, "/prompt");
    accepts(T2V, { prompt: `${"a".repeat(1999)}${SMILE}` });
    refuses(T2V, { prompt: `${"a".repeat(2000)}${SMILE}` }, "/prompt");
  });

  test("combining marks count: each is a code point of its own", () => {
    accepts(T2V, { prompt: "e\u0301".repeat(1000) });
    refuses(T2V, { prompt: `${"e\u0301".repeat(1000)}a` }, "/prompt");
  });

  test("only that endpoint has the limit, and only for prompt", () => {
    const long = "a".repeat(5000);
    accepts(PRO_T2V, { prompt: long });
    accepts(I2V, { prompt: long });
    accepts(PRO_I2V, { prompt: long });
    accepts(T2V, { negativePrompt: long });
  });

  test("an empty prompt is none where one is required", () => {
    refuses(T2V, { prompt: "" }, "/prompt");
    refuses(PRO_T2V, { prompt: "" }, "/prompt");
    accepts(I2V, { prompt: "" });
  });
});

describe("enumerations", () => {
  test.each([T2V, I2V, PRO_T2V, PRO_I2V] as const)("%s: aspectRatio", (endpoint) => {
    for (const aspectRatio of ["16:9", "9:16", "1:1"]) accepts(endpoint, { aspectRatio });
    for (const aspectRatio of ["4:3", "16:9 ", "16/9", "", "landscape", 1, ["16:9"]])
      refuses(endpoint, { aspectRatio }, "/aspectRatio");
  });

  test("storyboard: aspectRatio has words of its own", () => {
    for (const aspectRatio of ["landscape", "portrait", "square"]) accepts(STORYBOARD, { aspectRatio });
    for (const aspectRatio of ["16:9", "Landscape", ""]) refuses(STORYBOARD, { aspectRatio }, "/aspectRatio");
  });

  test.each([PRO_T2V, PRO_I2V] as const)("%s: duration is the number 10 or 15", (endpoint) => {
    for (const duration of [10, 15]) accepts(endpoint, { duration });
    for (const duration of ["10", "15", 0, -10, 9, 11, 14, 16, 25, 10.0001, true, [10]])
      refuses(endpoint, { duration }, "/duration");
  });

  test.each([PRO_T2V, PRO_I2V] as const)("%s: quality", (endpoint) => {
    for (const quality of ["standard", "high"]) accepts(endpoint, { quality });
    for (const quality of ["High", "low", "", 1]) refuses(endpoint, { quality }, "/quality");
  });

  test("storyboard: nFrames is a string, and one of three", () => {
    for (const [nFrames, duration] of [
      ["10", 10],
      ["15", 15],
      ["25", 25],
    ] as const)
      accepts(STORYBOARD, { nFrames, shots: [{ Scene: "a", duration }] });
    refuses(STORYBOARD, { nFrames: 10 }, "/nFrames");
    for (const nFrames of ["", "10.0", " 10", "010", "ten"]) refuses(STORYBOARD, { nFrames }, "/nFrames");
    refuses(STORYBOARD, { nFrames: "20", shots: [{ Scene: "a", duration: 20 }] }, "/nFrames");
  });
});

describe("imageUrl and the other URLs", () => {
  const GOOD = [IMAGE, "https://127.0.0.1:4011/files/x.png", "HTTPS://A.example/x", "https://[::1]/x"];
  const NO_URLS = [
    "",
    "cat.png",
    "//a.example/x",
    "ftp://a.example/x",
    "data:image/png;base64,AAAA",
    "javascript:alert(1)",
    "https:127.0.0.1",
    "https:/a.example/x",
    "https:///a.example/x",
    "https://",
    "https://?x",
    "https:\\\\a.example\\x",
    "https://a.example\\x",
    " https://a.example/x",
    "https://a.example/x ",
    "https://a.example/\tx",
    "https://a.example/x\n",
    "https://a.exa\u0000mple/x",
    "https://a b/x",
    "https://a.example:99999/x",
    "https://[::1/x",
  ];

  test("gen2 takes HTTPS only", () => {
    for (const imageUrl of GOOD) accepts(I2V, { imageUrl });
    for (const imageUrl of NO_URLS) refuses(I2V, { imageUrl }, "/imageUrl");
    refuses(I2V, { imageUrl: "http://a.example/x" }, "/imageUrl");
  });

  test("gen2-pro takes any well-formed http(s) URL", () => {
    for (const imageUrl of [...GOOD, "http://a.example/x"]) accepts(PRO_I2V, { imageUrl });
    for (const imageUrl of NO_URLS) refuses(PRO_I2V, { imageUrl }, "/imageUrl");
  });

  test("storyboard: each of imageUrls and callBackUrl", () => {
    accepts(STORYBOARD, { imageUrls: [] });
    accepts(STORYBOARD, { imageUrls: GOOD });
    for (const url of NO_URLS) {
      refuses(STORYBOARD, { imageUrls: [IMAGE, url] }, "/imageUrls/1");
      refuses(STORYBOARD, { callBackUrl: url }, "/callBackUrl");
    }
    refuses(STORYBOARD, { imageUrls: IMAGE }, "/imageUrls");
    refuses(STORYBOARD, { imageUrls: [1] }, "/imageUrls/0");
  });
});

test("watermark removal takes the one source host only, by raw prefix and by parsed origin", () => {
  for (const path of ["/", "/v.mp4", "/a/../b", "/v?x=https://evil.example/"])
    accepts(WATERMARK, { videoUrl: HOST + path });
  const lookAlikes = [
    HOST,
    `${HOST}.evil.example/v.mp4`,
    `${HOST}@evil.example/v.mp4`,
    `${HOST}:443@evil.example/v.mp4`,
    `${HOST}:8443/v.mp4`,
    `${HOST}\\@evil.example/v.mp4`,
    `${HOST}/\\evil.example`,
    `${HOST}/v.mp4\n`,
    ` ${HOST}/v.mp4`,
    "https://user@videos.example.com/v.mp4",
    "https://evil.example/https://videos.example.com/",
    "https://evil.example/?videos.example.com/",
    "https://xvideos.example.com/v.mp4",
    "https://videos.example.com./v.mp4",
    "https://videos.example.co/v.mp4",
    "https://vide\u043es.example.com/v.mp4",
    "http://videos.example.com/v.mp4",
    "https:/videos.example.com/v.mp4",
    "https:videos.example.com/v.mp4",
    "//videos.example.com/v.mp4",
    "",
  ];
  for (const videoUrl of lookAlikes) refuses(WATERMARK, { videoUrl }, "/videoUrl");
  expect(problems(WATERMARK, { videoUrl: "https://evil.example/" })).toEqual([
    `/videoUrl: videoUrl must begin with ${HOST}/`,
  ]);
});

describe("shots", () => {
  const shots = (...durations: unknown[]) => ({
    shots: durations.map((duration) => ({ Scene: "a", duration })),
  });

  test("at least one", () => {
    refuses(STORYBOARD, { shots: [] }, "/shots");
    refuses(STORYBOARD, { shots: {} }, "/shots");
  });

  test("the sum may be off by 0.05 seconds and not by 0.051", () => {
    for (const sum of [9.95, 10, 10.05]) accepts(STORYBOARD, shots(sum));
    for (const sum of [9.949, 10.051, 0.001, 1e308]) refuses(STORYBOARD, shots(sum), "/shots");
    for (const [nFrames, least, most] of [
      ["15", 14.95, 15.05],
      ["25", 24.95, 25.05],
    ] as const) {
      accepts(STORYBOARD, { nFrames, ...shots(least) });
      accepts(STORYBOARD, { nFrames, ...shots(most) });
      refuses(STORYBOARD, { nFrames, ...shots(least - 0.001) }, "/shots");
      refuses(STORYBOARD, { nFrames, ...shots(most + 0.001) }, "/shots");
    }
  });

  test("binary fractions do not push a sum over the tolerance", () => {
    accepts(STORYBOARD, shots(...Array(100).fill(0.1)));
    accepts(STORYBOARD, shots(...Array(3).fill(3.35)));
    accepts(STORYBOARD, shots(3.3, 3.3, 3.35));
    refuses(STORYBOARD, shots(3.3, 3.3, 3.349), "/shots");
  });

  test("each duration is a number above 0", () => {
    accepts(STORYBOARD, shots(0.001, 9.999));
    for (const duration of [0, -0, -1]) {
      const found = problems(STORYBOARD, changed(STORYBOARD, shots(duration, 10 - duration)));
      expect(found).toEqual(["/shots/0/duration: shots[0].duration must be greater than 0"]);
    }
    for (const duration of ["10", null, [10], true])
      expect(problems(STORYBOARD, changed(STORYBOARD, shots(duration))).join()).toContain(
        "/shots/0/duration",
      );
  });

  test("Scene is required and begins with a capital S: scene is refused with a suggestion", () => {
    const found = problems(STORYBOARD, { nFrames: "10", shots: [{ scene: "a", duration: 10 }] });
    expect(found).toEqual(
      expect.arrayContaining([
        "/shots/0/Scene: shots[0].Scene is required",
        "/shots/0/scene: shots[0].scene is not a known parameter; did you mean Scene?",
      ]),
    );
    expect(found).toHaveLength(2);
    for (const Scene of ["", 1, null])
      refuses(STORYBOARD, { shots: [{ Scene, duration: 10 }] }, "/shots/0/Scene");
    for (const shot of [null, 1, "a", []]) refuses(STORYBOARD, { shots: [shot] }, "/shots/0");
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

  test("a whole pair passes, also next to what only looks like an escape", () => {
    accepts(T2V, { prompt: SMILE });
    accepts(T2V, { prompt: "\\ud800 \\\\udc00" });
  });
});
