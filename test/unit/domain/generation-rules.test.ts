import { describe, expect, test } from "vitest";
import { validateGeneration } from "../../../src/domain/generation.ts";
import {
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
  T2V,
  WATERMARK,
} from "./generation-stage.ts";

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

  test("where the API names no length, texts have at most 10,000 code points", () => {
    const least = SMILE.repeat(10_000);
    const cases = [
      [T2V, "negativePrompt"],
      [I2V, "prompt"],
      [I2V, "negativePrompt"],
      [PRO_T2V, "prompt"],
      [PRO_T2V, "negativePrompt"],
      [PRO_I2V, "prompt"],
      [PRO_I2V, "negativePrompt"],
    ] as const;
    for (const [endpoint, name] of cases) {
      accepts(endpoint, { [name]: least });
      refuses(endpoint, { [name]: `${least}a` }, `/${name}`);
    }
    accepts(STORYBOARD, { shots: [{ Scene: least, duration: 10 }] });
    refuses(STORYBOARD, { shots: [{ Scene: `${least}a`, duration: 10 }] }, "/shots/0/Scene");
  });

  test("the 2000 code points of the API are that endpoint's prompt's alone", () => {
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

  test.each([
    [I2V, { imageUrl: "ftp://a.example/x" }, "imageUrl must be an https URL with a valid host and port"],
    [
      PRO_I2V,
      { imageUrl: "ftp://a.example/x" },
      "imageUrl must be an http or https URL with a valid host and port",
    ],
    [STORYBOARD, { callBackUrl: "x" }, "callBackUrl must be an http or https URL with a valid host and port"],
    [
      STORYBOARD,
      { imageUrls: ["x"] },
      "imageUrls[0] must be an http or https URL with a valid host and port",
    ],
  ] as const)("%s with %j says the rule in words", (endpoint, change, message) => {
    const result = validateGeneration(endpoint, changed(endpoint, change), HOST);
    expect(result.ok ? [] : result.problems.map((problem) => problem.message)).toEqual([message]);
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

test("a videoUrl that begins with the source host but is no URL is told so, not that it must begin so", () => {
  for (const rest of ["a b", "v.mp4\n", "\\evil.example", "\u0000"])
    expect(problems(WATERMARK, { videoUrl: `${HOST}/${rest}` })).toEqual([
      "/videoUrl: videoUrl must be a well-formed URL",
    ]);
});

describe("an answer to a wrong body stays small, whatever the body is", () => {
  const answer = (endpoint: Parameters<typeof validateGeneration>[0], body: unknown) => {
    const validation = validateGeneration(endpoint, body, HOST);
    if (validation.ok) throw new Error("it must be refused");
    expect(validation.problems.length).toBeLessThanOrEqual(20);
    for (const { path, message } of validation.problems) {
      expect(message.length).toBeLessThan(300);
      expect(path.length).toBeLessThan(300);
    }
    return validation.problems;
  };

  test("32,000 shots with unknown names", () => {
    const shots = Array.from({ length: 32_000 }, () => ({ abc: 1 }));
    expect(answer(STORYBOARD, { nFrames: "10", shots }).length).toBeGreaterThan(10);
  });

  test("7,400 half surrogates", () => {
    const shots = Array.from({ length: 100 }, () => ({ Scene: "\ud800", duration: 0.1 }));
    expect(answer(STORYBOARD, { nFrames: "10", shots })).toHaveLength(20);
    const imageUrls = Array.from({ length: 7_400 }, () => "\ud800");
    answer(STORYBOARD, { ...MINIMAL[STORYBOARD], imageUrls });
  });

  test("values and names of 262,000 characters", () => {
    const long = "1".repeat(262_000);
    answer(STORYBOARD, { nFrames: long, shots: [{ Scene: "a", duration: 10 }] });
    answer(PRO_T2V, { prompt: "a", quality: long, aspectRatio: long, duration: Number(long) });
    answer(WATERMARK, { videoUrl: long });
    expect(answer(T2V, { prompt: "a", [long]: 1 })[0]!.message).toBe(
      `${"1".repeat(100)} is not a known parameter`,
    );
    answer(STORYBOARD, { ...MINIMAL[STORYBOARD], callBackUrl: long, imageUrls: [long] });
  });
});

test("a storyboard has at most 100 shots and 100 images", () => {
  const shots = (count: number) =>
    Array.from({ length: count }, () => ({ Scene: "a", duration: 10 / count }));
  accepts(STORYBOARD, { shots: shots(100), imageUrls: Array(100).fill(IMAGE) });
  refuses(STORYBOARD, { shots: shots(101) }, "/shots");
  refuses(STORYBOARD, { imageUrls: Array(101).fill(IMAGE) }, "/imageUrls");
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
    const beside = problems(STORYBOARD, changed(STORYBOARD, shots(5, "5")));
    expect(beside).toEqual(["/shots/1/duration: shots[1].duration must be a number"]);
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

// Names alone used to fill the list of errors, and the answer named nothing.
test("a body of nothing but unknown names still says which, and what is missing", () => {
  const body = Object.fromEntries(Array.from({ length: 500 }, (_, at) => [`unknown${at}`, at]));
  const validation = validateGeneration("gen2/text-to-video", body, "https://videos.example.com");
  if (validation.ok) throw new Error("it must be refused");
  const messages = validation.problems.map(({ message }) => message);
  expect(messages).toContain("prompt is required");
  expect(messages[0]).toBe("unknown0 is not a known parameter");
  expect(messages.length).toBeLessThan(64);
});
