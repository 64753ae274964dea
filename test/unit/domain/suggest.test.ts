import { expect, test } from "vitest";
import { nearest } from "../../../src/domain/problems.ts";

const PARAMETERS = ["prompt", "negativePrompt", "aspectRatio", "imageUrl", "callBackUrl", "nFrames"];

test.each([
  ["promt", "prompt"],
  ["Prompt", "prompt"],
  ["negative_prompt", "negativePrompt"],
  ["negative-promt", "negativePrompt"],
  ["aspectratio", "aspectRatio"],
  ["image_url", "imageUrl"],
  ["imageUri", "imageUrl"],
  ["callbackURL", "callBackUrl"],
  ["nframe", "nFrames"],
])("%s is near to %s", (word, name) => {
  expect(nearest(word, PARAMETERS)).toBe(name);
});

test.each(["seed", "model", "x", "", "_", "12", "promptprompt"])("%j is near to nothing", (word) => {
  expect(nearest(word, PARAMETERS)).toBeUndefined();
});

test("two edits are near, whatever the length; in longer words a third of the letters", () => {
  expect(nearest("prot", ["port"])).toBe("port");
  expect(nearest("prots", ["porter"])).toBeUndefined();
  expect(nearest("abcdefgvwxyz", ["abcdefghijkl"])).toBeUndefined();
  expect(nearest("abcdefghwxyz", ["abcdefghijkl"])).toBe("abcdefghijkl");
});

test("the nearest wins, and the first of equally near ones", () => {
  expect(nearest("hosts", ["posts", "host", "hosta"])).toBe("posts");
  expect(nearest("host", ["post", "host"])).toBe("host");
});

test("words over 64 characters are not compared", () => {
  const long = "a".repeat(65);
  expect(nearest(long, [long])).toBeUndefined();
  expect(nearest("a".repeat(64), [long, "a".repeat(63)])).toBe("a".repeat(63));
});

test("names from JavaScript's own objects are words like any other", () => {
  expect(nearest("__proto__", PARAMETERS)).toBeUndefined();
  expect(nearest("constructor", PARAMETERS)).toBeUndefined();
});
