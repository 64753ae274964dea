import { Writable } from "node:stream";
import fc from "fast-check";
import { describe, expect, onTestFinished, test, vi } from "vitest";
import type { Refusal } from "../../../src/domain/errors.ts";
import { FILE_BYTES_MAX } from "../../../src/domain/limits.ts";
import { FORM_OVERHEAD_BYTES_MAX, ImageForm, type ImageType } from "../../../src/upstream/upload-form.ts";
import { formBoundary } from "../../../src/upstream/upload-stream.ts";
import { IMAGE_TYPES, imageOfSize, tinyImage } from "../../support/images.ts";
import { BOUNDARY, formOf, imageForm, sinkInto } from "./upload-stage.ts";

interface Verdict {
  refusal?: Refusal;
  type?: ImageType | undefined;
  file: Buffer;
}

/** Parses a form given in these chunks. Fails if there is no verdict, or a second one. */
async function parse(chunks: Buffer[], boundary = BOUNDARY): Promise<Verdict> {
  const file: Buffer[] = [];
  let type: ImageType | undefined;
  let sink: Writable | undefined;
  let verdicts = 0;
  const verdict = await new Promise<Verdict>((resolve) => {
    let ready = () => {};
    const settle = (refusal?: Refusal) => {
      verdicts++;
      parser.stop();
      ready();
      resolve({ ...(refusal ? { refusal } : {}), type, file: Buffer.concat(file) });
    };
    const parser = new ImageForm(boundary, {
      image(found) {
        type = found;
        sink = new Writable({
          write(chunk, _encoding, done) {
            file.push(chunk);
            setImmediate(done);
          },
        });
        return sinkInto(sink);
      },
      whole: () => sink?.end(() => settle()),
      refused: settle,
    });
    parser.onDrain(() => ready());
    const feed = async () => {
      for (const chunk of chunks) {
        if (verdicts > 0) return;
        const drained = new Promise<void>((resolve) => {
          ready = resolve;
        });
        if (!parser.write(chunk)) await drained;
      }
      if (verdicts === 0) parser.end();
    };
    void feed();
  });
  await new Promise((resolve) => setImmediate(resolve));
  expect(verdicts).toBe(1);
  return verdict;
}

const status = ({ refusal }: Verdict) => refusal?.status ?? 200;
const path = ({ refusal }: Verdict) => refusal?.details?.[0]?.path;
const png = tinyImage("image/png");

describe("a form of one image", () => {
  test.each(IMAGE_TYPES)("passes a real %s unchanged", async (type) => {
    const verdict = await parse([imageForm(tinyImage(type), type)]);
    expect(verdict).toEqual({ type, file: tinyImage(type) });
  });

  test("passes whatever the bytes it is split at", async () => {
    const form = imageForm(png);
    for (let at = 1; at < form.length; at++)
      expect(await parse([form.subarray(0, at), form.subarray(at)]), `split at ${at}`).toEqual({
        type: "image/png",
        file: png,
      });
    expect(await parse([...form].map((byte) => Buffer.of(byte)))).toEqual({ type: "image/png", file: png });
  });

  test("passes a file full of line ends and near boundaries, in random chunks", async () => {
    const alike = Buffer.from(
      `\r\n--${BOUNDARY.slice(0, -1)}\r\n\r\n--\r\n-\r\r\n--${BOUNDARY.slice(0, -1)}--\r\n`,
    );
    const file = Buffer.concat([png, ...Array.from({ length: 50 }, () => alike)]);
    const form = imageForm(file);
    await fc.assert(
      fc.asyncProperty(fc.array(fc.nat(form.length), { maxLength: 40 }), async (cuts) => {
        expect(await parse(chunksAt(form, cuts))).toEqual({ type: "image/png", file });
      }),
      { numRuns: 100 },
    );
  });

  test("passes a file that ends like a boundary begins, also where all comes at once", async () => {
    for (const end of ["\r", "\r\n", "\r\n-", "\r\n--", `\r\n--${BOUNDARY.slice(0, -1)}`, "\r\r\n"]) {
      const file = Buffer.concat([png, Buffer.from(end)]);
      expect(await parse([imageForm(file)])).toEqual({ type: "image/png", file });
      const short = Buffer.concat([Buffer.of(0xff, 0xd8, 0xff), Buffer.from(end.slice(0, 2))]);
      expect(await parse([imageForm(short, "image/jpeg")])).toEqual({ type: "image/jpeg", file: short });
    }
  });

  test("may have a preamble, an epilogue in a later write, other headers, and be up to the limit", async () => {
    const parts = [{ filename: "c", type: "image/png", body: png }];
    expect(status(await parse([formOf(parts, { preamble: "of no matter\r\n" })]))).toBe(200);
    const form = formOf(parts, { epilogue: "" });
    expect(status(await parse([form, Buffer.from("\r\nepilogue\r\n"), Buffer.from("--more\r\n")]))).toBe(200);
    expect(status(await parse([form]))).toBe(200);
    const head = `X-A: b\r\nCONTENT-TYPE: Image/PNG; a=b\r\ncontent-disposition: form-data; name=file; filename*=utf-8''%e2%82%ac.png`;
    expect(await parse([formOf([{ head, body: png }])])).toEqual({ type: "image/png", file: png });
  });

  // Guarantee: RFC 2046, 5.1.1. White space may end the line of a boundary.
  test.each([" ", "\t", " \t  ", " ".repeat(70)])(
    "may have %j behind each boundary, wherever it is split",
    async (padding) => {
      const form = (type: string | undefined) => {
        const text = formOf([{ filename: "a", type, body: png }]).toString("latin1");
        return Buffer.from(
          text
            .replaceAll(`--${BOUNDARY}\r\n`, `--${BOUNDARY}${padding}\r\n`)
            .replace(`--${BOUNDARY}--`, `--${BOUNDARY}--${padding}`),
          "latin1",
        );
      };
      for (const type of ["image/png", undefined]) {
        const padded = form(type);
        for (let at = 1; at < padded.length; at++)
          expect(await parse([padded.subarray(0, at), padded.subarray(at)]), `split at ${at}`).toEqual({
            type: "image/png",
            file: png,
          });
        expect(await parse([...padded].map((byte) => Buffer.of(byte)))).toEqual({
          type: "image/png",
          file: png,
        });
      }
      expect(await parse([form("text/plain")]), "what it declares is still read").toMatchObject({
        refusal: { status: 415 },
      });
    },
  );

  test("white space behind a boundary counts toward what a form may have beside its file", async () => {
    const padding = Buffer.alloc(FORM_OVERHEAD_BYTES_MAX + 1, " ");
    const [head, ...rest] = imageForm(png).toString("latin1").split("\r\n");
    const form = [Buffer.from(head!), padding, Buffer.from(`\r\n${rest.join("\r\n")}`, "latin1")];
    expect(status(await parse(form))).toBe(400);
  });

  test.each([
    undefined,
    "",
    "application/octet-stream",
    "binary/octet-stream",
    "image/*",
    "*/*",
    "IMAGE/*; q=1",
  ])("may declare %s: its bytes say what it is", async (type) => {
    for (const actual of IMAGE_TYPES)
      expect((await parse([formOf([{ filename: "a", type, body: tinyImage(actual) }])])).type).toBe(actual);
  });

  test("has a limit that is exact and inclusive", async () => {
    const largest = imageOfSize("image/gif", FILE_BYTES_MAX);
    const passed = await parse(chunksOf(imageForm(largest, "image/gif"), 100_000));
    expect(passed.type).toBe("image/gif");
    expect(passed.file.equals(largest)).toBe(true);
    const over = imageOfSize("image/gif", FILE_BYTES_MAX + 1);
    const refused = await parse(chunksOf(imageForm(over, "image/gif"), 100_000));
    expect(refused.refusal).toMatchObject({ status: 413, code: 413, details: [{ path: "/file" }] });
    expect(refused.file.length).toBeLessThanOrEqual(FILE_BYTES_MAX);
  });
});

describe("415", () => {
  test.each(["text/plain", "image/jpeg", "image/svg+xml", "image", "video/mp4", "Text/Plain; charset=utf-8"])(
    "a PNG declared as %s",
    async (type) => {
      const verdict = await parse([imageForm(png, type)]);
      expect(status(verdict)).toBe(415);
      expect(verdict.file).toHaveLength(0);
      const split = [...imageForm(png, type)].map((byte) => Buffer.of(byte));
      expect(status(await parse(split))).toBe(415);
    },
  );

  test("no image, whatever it declares: before a byte of it is passed on", async () => {
    for (const type of [...IMAGE_TYPES, undefined, "application/octet-stream"])
      for (const body of ["<svg/>", "%PDF-1.7 aaaaaaaaaaaaaa", "\x89PNG\r\n\x1a", "x"]) {
        const verdict = await parse([formOf([{ filename: "a", type, body: Buffer.from(body, "latin1") }])]);
        expect(status(verdict)).toBe(415);
        expect(verdict.type).toBeUndefined();
      }
  });
});

test("a field that is not the file is named, with the one that was meant", async () => {
  const { refusal } = await parse([
    formOf([{ name: "File", filename: "a.png", type: "image/png", body: png }]),
  ]);
  expect(refusal?.text).toContain("File is not a known parameter; did you mean file?");
});

test("a part without a name is refused in words that make sense", async () => {
  const { refusal } = await parse([formOf([{ name: "", filename: "a.png", type: "image/png", body: png }])]);
  expect(refusal).toMatchObject({
    text: "Invalid request: the form must have one part only, the image in field file",
    details: [{ path: "/" }],
  });
});

describe("400", () => {
  const file = { filename: "a.png", type: "image/png", body: png };
  const cases: [name: string, form: Buffer, path: string][] = [
    ["an empty file", formOf([{ ...file, body: "" }]), "/file"],
    [
      "an empty browser field",
      formOf([{ filename: "", type: "application/octet-stream", body: "" }]),
      "/file",
    ],
    ["a file without a filename", formOf([{ type: "image/png", body: png }]), "/file"],
    ["another field", formOf([{ ...file, name: "image" }]), "/image"],
    ["a field with a name like a pointer", formOf([{ ...file, name: "a/b~c" }]), "/a~1b~0c"],
    [
      "a field without a name",
      formOf([{ head: "Content-Disposition: form-data; filename=a", body: png }]),
      "/",
    ],
    ["a text field before the file", formOf([{ name: "title", body: "x" }, file]), "/title"],
    ["a text field after the file", formOf([file, { name: "title", body: "x" }]), "/title"],
    ["two files", formOf([file, file]), ""],
    ["a thousand parts", formOf(Array.from({ length: 1_000 }, () => file)), ""],
    ["a second part without a disposition", formOf([file, { head: "X-A: b", body: "x" }]), ""],
    ["a part without a disposition", formOf([{ head: "Content-Type: image/png", body: png }]), "/file"],
    [
      "an attachment",
      formOf([{ head: "Content-Disposition: attachment; filename=file", body: png }]),
      "/file",
    ],
    ["no part", formOf([]), "/file"],
    ["nothing", Buffer.alloc(0), ""],
    ["no form", Buffer.from('{"file":"x"}'), ""],
    ["another boundary", formOf([file], { boundary: "other" }), ""],
    [
      "a line that begins like the boundary",
      formOf([{ ...file, body: Buffer.concat([png, Buffer.from(`\r\n--${BOUNDARY}x`)]) }]),
      "",
    ],
    [
      "huge part headers",
      formOf([
        {
          head: `X-A: ${"a".repeat(20_000)}\r\nContent-Disposition: form-data; name="file"; filename="a"`,
          body: png,
        },
      ]),
      "",
    ],
    ["a part header without a colon", formOf([{ head: "Content-Disposition form-data", body: png }]), ""],
    ["an endless preamble", Buffer.alloc(FORM_OVERHEAD_BYTES_MAX + 1, "x"), "/file"],
    [
      "an endless first field",
      formOf([{ name: "a", body: "x".repeat(FORM_OVERHEAD_BYTES_MAX) }, file]),
      "/a",
    ],
    [
      "line feeds only",
      Buffer.from(imageForm(png).toString("latin1").replaceAll("\r\n", "\n"), "latin1"),
      "",
    ],
    [
      "a nested multipart",
      formOf([
        {
          head: 'Content-Disposition: form-data; name="file"\r\nContent-Type: multipart/mixed; boundary=b',
          body: Buffer.concat([
            Buffer.from("--b\r\nContent-Disposition: file; filename=a\r\n\r\n"),
            png,
            Buffer.from("\r\n--b--"),
          ]),
        },
      ]),
      "/file",
    ],
  ];

  test.each(cases)("%s", async (_, form, where) => {
    const verdict = await parse([form]);
    expect(verdict.refusal).toMatchObject({ status: 400, code: 400, name: "invalid_request" });
    expect(path(verdict)).toBe(where);
    expect(verdict.refusal?.text).toContain(verdict.refusal?.details?.[0]?.message);
    expect(status(await parse(chunksOf(form, 61)))).toBe(400);
  });

  test("every truncation of a valid form", async () => {
    const form = formOf([file], { epilogue: "" });
    for (let length = 0; length < form.length; length++)
      expect(status(await parse([form.subarray(0, length)])), `${length} bytes`).not.toBe(200);
  });

  test("names in a refusal are bounded and well-formed", async () => {
    const name = `${"n".repeat(99)}\u{1F600}\u{1F600}`;
    const where = path(await parse([formOf([{ ...file, name }])])) ?? "";
    expect(where.length).toBeLessThanOrEqual(101);
    expect(where.isWellFormed()).toBe(true);
  });
});

test("no form, however broken, gives two verdicts, none, or a crash", async () => {
  const valid = imageForm(png);
  const crumb = fc.constantFrom(
    "\r\n",
    "--",
    BOUNDARY,
    `\r\n--${BOUNDARY}`,
    `--${BOUNDARY}--`,
    "\r\n\r\n",
    "\0",
    '"',
    ";",
  );
  const edit = fc.record({
    at: fc.nat(valid.length),
    cut: fc.nat(20),
    put: fc.oneof(crumb, fc.string({ maxLength: 8 })),
  });
  await fc.assert(
    fc.asyncProperty(
      fc.array(edit, { maxLength: 4 }),
      fc.array(fc.nat(400), { maxLength: 5 }),
      async (edits, cuts) => {
        let form = valid;
        for (const { at, cut, put } of edits)
          form = Buffer.concat([form.subarray(0, at), Buffer.from(put), form.subarray(at + cut)]);
        expect([200, 400, 413, 415]).toContain(status(await parse(chunksAt(form, cuts))));
      },
    ),
    { numRuns: 2_000 },
  );
});

/** The parser's message about a malformed form may depend on the cut; that the form is malformed does not. */
const withoutParserWords = (refusal: object | undefined) =>
  JSON.stringify(refusal)?.replaceAll(/(the form is malformed): [^"]*/g, "$1");

// Guarantee: what a form is does not depend on how the network cuts it.
test("a form gets the same verdict in every cut, boundaries and their likes in any place but a part's head", async () => {
  const crumb = fc.constantFrom(
    "\r",
    "\r\n",
    "\r\n\r\n",
    "-",
    "--",
    BOUNDARY.slice(0, -1),
    `\r\n--${BOUNDARY}`,
    `\r\n--${BOUNDARY}-`,
    `\r\n--${BOUNDARY}--`,
    `\r\n--${BOUNDARY}\r\nX: y\r\n\r\n`,
    `\r\n--${BOUNDARY}\r\nContent-Disposition: form-data; name="a"\r\n\r\n`,
    "GIF89a",
  );
  const crumbs = fc.array(crumb, { maxLength: 4 }).map((all) => all.join(""));
  const heads = fc.constantFrom(
    'Content-Disposition: form-data; name="file"; filename="a"\r\nContent-Type: image/png',
    'Content-Disposition: form-data; name="file"; filename="a"\r\nContent-Type: text/plain',
    'Content-Disposition: form-data; name="file"',
    "X: y",
  );
  const bodies = fc.constantFrom(png.subarray(0, 40).toString("latin1"), "\xff\xd8\xff", "", "text");
  const verdicts = new Set<number>();
  await fc.assert(
    fc.asyncProperty(
      crumbs,
      heads,
      bodies,
      crumbs,
      crumbs,
      fc.array(fc.nat(600), { maxLength: 20 }),
      async (preamble, head, body, rest, epilogue, cuts) => {
        const part = `\r\n--${BOUNDARY}\r\n${head}\r\n\r\n${body}${rest}`;
        const form = Buffer.from(`${preamble}${part}\r\n--${BOUNDARY}--${epilogue}`, "latin1");
        const { refusal, file } = await parse([form]);
        verdicts.add(refusal?.status ?? 200);
        for (const chunks of [chunksAt(form, cuts), chunksOf(form, 1)]) {
          const cut = await parse(chunks);
          expect(withoutParserWords(cut.refusal)).toEqual(withoutParserWords(refusal));
          if (!refusal) expect(cut.file).toEqual(file);
        }
      },
    ),
    { numRuns: 500 },
  );
  expect(verdicts).toEqual(new Set([200, 400, 415]));
});

test.each(["-\rGIF89a", "--\rGIF89a", `--${BOUNDARY.slice(0, -1)}GIF89a`, "-"])(
  "no byte is lost of a file that begins like the rest of a boundary: %j",
  async (body) => {
    const form = formOf([{ filename: "a", type: "image/gif", body: Buffer.from(body) }]);
    expect(status(await parse([form]))).toBe(415);
    for (let length = 1; length < form.length; length++)
      expect(status(await parse(chunksOf(form, length))), `${length} bytes at a time`).toBe(415);
    for (let at = 1; at < form.length; at++)
      expect(status(await parse(chunksAt(form, [at]))), `cut at ${at}`).toBe(415);
  },
);

test("a file of one line end before something like a boundary gets its verdict", async () => {
  const like = Buffer.from(`\r\r\n--${BOUNDARY}\nX: y\r\n`);
  expect(status(await parse([formOf([{ filename: "a", type: "image/png", body: like }])]))).toBe(415);
});

describe("headers", () => {
  const boundary = (headers: Record<string, string>) => {
    const found = formBoundary(headers);
    return typeof found === "string" ? found : found.status;
  };

  test("give the boundary, quoted or not", () => {
    expect(boundary({ "content-type": "multipart/form-data; boundary=abc" })).toBe("abc");
    expect(boundary({ "content-type": 'Multipart/Form-Data; charset=utf-8; boundary="a b:c"' })).toBe(
      "a b:c",
    );
    expect(boundary({ "content-type": `multipart/form-data; boundary=${"b".repeat(70)}` })).toBe(
      "b".repeat(70),
    );
  });

  test("an encoding that is none changes nothing", () => {
    const type = "multipart/form-data; boundary=a";
    expect(boundary({ "content-type": type, "content-encoding": "Identity" })).toBe("a");
  });

  test.each([
    ["no type", {}, 415],
    ["JSON", { "content-type": "application/json" }, 415],
    ["another multipart", { "content-type": "multipart/mixed; boundary=a" }, 415],
    ["no media type at all", { "content-type": "form" }, 415],
    ["a type too long", { "content-type": `multipart/form-data;${" ".repeat(256)}boundary=a` }, 415],
    [
      "a content encoding",
      { "content-type": "multipart/form-data; boundary=a", "content-encoding": "gzip" },
      415,
    ],
    ["no boundary", { "content-type": "multipart/form-data" }, 400],
    ["an empty boundary", { "content-type": 'multipart/form-data; boundary=""' }, 400],
    ["a boundary too long", { "content-type": `multipart/form-data; boundary=${"b".repeat(71)}` }, 400],
    ["a boundary that ends in a space", { "content-type": 'multipart/form-data; boundary="a "' }, 400],
    ["a boundary with a quote", { "content-type": 'multipart/form-data; boundary="a\\"b"' }, 400],
    ["a boundary of other characters", { "content-type": 'multipart/form-data; boundary="é"' }, 400],
  ])("%s", (_, headers, refused) => {
    expect(boundary(headers as Record<string, string>)).toBe(refused);
  });

  test("refuse a body that can only be too long", () => {
    const type = { "content-type": "multipart/form-data; boundary=a" };
    const most = FILE_BYTES_MAX + FORM_OVERHEAD_BYTES_MAX;
    expect(boundary({ ...type, "content-length": `${most}` })).toBe("a");
    expect(boundary({ ...type, "content-length": `${most + 1}` })).toBe(413);
  });

  test("a boundary with every character that RFC 2046 allows is found in the form", async () => {
    const odd = "a'()+_,-./:=? b";
    const verdict = await parse(
      [formOf([{ filename: "a", type: "image/png", body: png }], { boundary: odd })],
      odd,
    );
    expect(status(verdict)).toBe(200);
  });
});

describe("what a form has beside its file is bounded as a whole", () => {
  const part = { filename: "a", type: "image/png", body: png };
  const besideBytes = formOf([part], { epilogue: "" }).length - png.length;
  const room = FORM_OVERHEAD_BYTES_MAX - besideBytes;
  const tooLarge = {
    status: 413,
    code: 413,
    details: [{ path: "", message: expect.stringContaining("65536") }],
  };

  test.each<[string, { preamble?: string; epilogue: string }]>([
    ["behind the file", { epilogue: "x".repeat(room) }],
    ["before and behind it", { preamble: `${"x".repeat(room / 2)}\r\n`, epilogue: "x".repeat(room / 2 - 2) }],
    ["in boundaries", { epilogue: `\r\n--${BOUNDARY}`.repeat(room / (BOUNDARY.length + 4)) }],
  ])("%s, to the byte, however it is cut", async (_, parts) => {
    const form = formOf([part], parts);
    const least = FORM_OVERHEAD_BYTES_MAX + png.length - form.length;
    const fits = Buffer.concat([form, Buffer.alloc(least, "x")]);
    for (const size of [fits.length, 1000, 61]) {
      expect(status(await parse(chunksOf(fits, size))), `chunks of ${size}`).toBe(200);
      const { refusal } = await parse(chunksOf(Buffer.concat([fits, Buffer.of(0x78)]), size));
      expect(refusal, `chunks of ${size}`).toMatchObject(tooLarge);
    }
  });

  test("a form cannot go on for ever", async () => {
    const endless = Array.from({ length: 120 }, () => Buffer.alloc(100_000, "x"));
    expect((await parse([formOf([part]), ...endless])).refusal).toMatchObject(tooLarge);
  });

  test("boundaries behind the closing one are not parsed", async () => {
    const writes = vi.spyOn(Writable.prototype, "write");
    onTestFinished(() => writes.mockRestore());
    expect(status(await parse([formOf([part])]))).toBe(200);
    const usual = writes.mock.calls.length;
    expect(usual).toBeGreaterThan(0);
    writes.mockClear();
    const epilogue = `\r\n--${BOUNDARY}`.repeat(2000);
    expect(status(await parse([formOf([part]), Buffer.from(epilogue)]))).toBe(200);
    expect(status(await parse([formOf([part], { epilogue })]))).toBe(200);
    expect(writes.mock.calls.length).toBeLessThanOrEqual(2 * usual);
  });
});

function chunksOf(bytes: Buffer, size: number): Buffer[] {
  const chunks: Buffer[] = [];
  for (let at = 0; at < bytes.length; at += size) chunks.push(bytes.subarray(at, at + size));
  return chunks;
}

function chunksAt(bytes: Buffer, cuts: number[]): Buffer[] {
  const at = [0, ...cuts.map((cut) => Math.min(cut, bytes.length)).sort((a, b) => a - b), bytes.length];
  return at.slice(1).map((end, i) => bytes.subarray(at[i], end));
}
