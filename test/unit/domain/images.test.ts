import { describe, expect, test } from "vitest";
import { declaresImage, imageTypeOf, MAGIC_BYTES } from "../../../src/upstream/upload-form.ts";
import { IMAGE_TYPES, imageOfSize, tinyImage } from "../../support/images.ts";

describe("imageTypeOf", () => {
  test.each(IMAGE_TYPES)("knows a real %s by its first bytes", (type) => {
    expect(imageTypeOf(tinyImage(type))).toBe(type);
    expect(imageTypeOf(tinyImage(type).subarray(0, MAGIC_BYTES))).toBe(type);
    expect(imageTypeOf(imageOfSize(type, 100_000))).toBe(type);
  });

  test("knows both versions of GIF, and no third", () => {
    expect(imageTypeOf(Buffer.from("GIF87a......"))).toBe("image/gif");
    expect(imageTypeOf(Buffer.from("GIF89a......"))).toBe("image/gif");
    expect(imageTypeOf(Buffer.from("GIF88a......"))).toBeUndefined();
  });

  test.each(IMAGE_TYPES)("every byte of the magic of %s counts", (type) => {
    const magic = { "image/jpeg": 3, "image/png": 8, "image/webp": 12, "image/gif": 6 }[type];
    for (let at = 0; at < magic; at++) {
      if (type === "image/webp" && at >= 4 && at < 8) continue; // The length of the RIFF.
      const head = Buffer.from(tinyImage(type));
      head[at]! ^= 0x80;
      expect(imageTypeOf(head), `byte ${at}`).toBeUndefined();
    }
    expect(imageTypeOf(tinyImage(type).subarray(0, magic - 1))).toBeUndefined();
  });

  test.each([
    ["nothing", ""],
    ["text", "hello, world"],
    ["markup", "<svg xmlns='http://www.w3.org/2000/svg'/>"],
    ["a sound in RIFF", "RIFF\x24\x00\x00\x00WAVEfmt "],
    ["a film in RIFF", "RIFF\x24\x00\x00\x00AVI LIST"],
    ["AVIF", "\x00\x00\x00\x20ftypavif\x00\x00"],
    ["BMP", "BM\x36\x00\x00\x00\x00\x00\x00\x00\x36\x00"],
    ["TIFF", "II*\x00\x08\x00\x00\x00\x00\x00\x00\x00"],
    ["magic that begins one byte late", " \x89PNG\r\n\x1a\n   "],
  ])("refuses %s", (_, head) => {
    expect(imageTypeOf(Buffer.from(head, "latin1"))).toBeUndefined();
  });
});

describe("declaresImage", () => {
  test("a type declared must be the type found", () => {
    for (const actual of IMAGE_TYPES)
      for (const declared of IMAGE_TYPES) expect(declaresImage(declared, actual)).toBe(declared === actual);
  });

  test.each([undefined, "application/octet-stream", "binary/octet-stream", "image/*", "*/*"])(
    "%s claims nothing",
    (declared) => {
      for (const actual of IMAGE_TYPES) expect(declaresImage(declared, actual)).toBe(true);
    },
  );

  test("the usual misnomers of a type are that type", () => {
    expect(declaresImage("image/x-png", "image/png")).toBe(true);
    expect(declaresImage("image/x-png", "image/jpeg")).toBe(false);
    expect(declaresImage("image/x-citrix-jpeg", "image/jpeg")).toBe(true);
    expect(declaresImage("image/jpg", "image/jpeg")).toBe(true);
    expect(declaresImage("image/pjpeg", "image/jpeg")).toBe(true);
    expect(declaresImage("image/jpg", "image/png")).toBe(false);
  });

  test.each(["text/plain", "image/svg+xml", "text/*", "image", "", "__proto__", "constructor"])(
    "%s is no image",
    (declared) => {
      for (const actual of IMAGE_TYPES) expect(declaresImage(declared, actual)).toBe(false);
    },
  );
});
