import type { Readable } from "node:stream";
import busboy from "busboy";
import { type Refusal, refuse } from "../domain/errors.ts";
import { FILE_BYTES_MAX } from "../domain/limits.ts";
import { shown, unknownName } from "../domain/problems.ts";

const LINE_END = Buffer.from("\r\n");
const NOTHING = Buffer.alloc(0);
const SPACE = 0x20;
const TAB = 0x09;

export interface FileSink {
  /** Owns the bytes from now on. @returns false if it is full until it has drained */
  write(bytes: Buffer): boolean;
  onDrain(listener: () => void): void;
}

export interface FormEvents {
  /** The magic bytes of the file are valid. @returns where its bytes are written */
  image(type: ImageType): FileSink;
  /** The form ended and is valid; every byte of the file is written. */
  whole(): void;
  refused(refusal: Refusal): void;
}

interface FoundFile {
  stream: Readable;
  declared: string | undefined;
}

/** Exactly one part, an image in `file`. busboy reads all but the file. Nothing is reported after `stop`. */
export class ImageForm {
  readonly #delimiter: Buffer;
  /** The delimiter that ends the form. What comes behind it, the epilogue, is only counted. */
  readonly #closing: Buffer;
  readonly #on: FormEvents;
  readonly #busboy: busboy.Busboy;
  readonly #split: ReturnType<typeof splitAt>;
  #stopped = false;
  /** Without the line end that is put in front of the form. */
  #besideFileBytes = -LINE_END.length;
  #isClosed = false;
  /** All bytes up to the chunk in which the file begins, that chunk included; undefined after that. */
  #preface: Buffer[] | undefined = [];
  /** The last bytes that busboy got before it found the file. */
  #before: Buffer = NOTHING;
  #found: FoundFile | undefined;
  #image: ImageReading | undefined;
  #withinFile = false;
  /** White space that follows a delimiter directly is no part of the form. */
  #isPadding = false;
  #full = false;
  #drained = () => {};

  /** @param boundary as `formBoundary` returned it */
  constructor(boundary: string, on: FormEvents) {
    this.#delimiter = Buffer.from(`\r\n--${boundary}`);
    this.#closing = Buffer.from(`\r\n--${boundary}--`);
    this.#on = on;
    this.#busboy = this.#openBusboy(boundary);
    // To busboy as well, a form begins as if a line had ended before it.
    this.#split = splitAt(this.#delimiter, LINE_END, {
      between: (bytes) => this.#takeBytes(bytes),
      delimiter: () => this.#takeDelimiter(),
    });
  }

  /** @returns false if the image's sink is full: the next bytes may come after `onDrain` */
  write(chunk: Buffer): boolean {
    this.#preface?.push(chunk);
    if (this.#isClosed) this.#besideFileBytes += chunk.length;
    else this.#split.push(chunk);
    this.#checkBesideFile();
    return !this.#full;
  }

  end(): void {
    this.#split.end();
    this.#checkBesideFile();
    if (!this.#stopped) this.#busboy.end();
  }

  onDrain(listener: () => void): void {
    this.#drained = listener;
  }

  stop(): void {
    this.#stopped = true;
    this.#preface = undefined;
    this.#busboy.destroy();
  }

  #checkBesideFile(): void {
    if (this.#besideFileBytes <= FORM_OVERHEAD_BYTES_MAX) return;
    const message = `file must begin within the first ${FORM_OVERHEAD_BYTES_MAX} bytes`;
    this.#fail(this.#preface ? invalidForm("/file", message) : formTooLarge());
  }

  #fail(refusal: Refusal): void {
    if (!this.#stopped) this.#on.refused(refusal);
  }

  #openBusboy(boundary: string): busboy.Busboy {
    // busboy counts boundaries, and so sees two parts where a line of the file merely begins like a boundary.
    const form = busboy({
      headers: { "content-type": `multipart/form-data; boundary="${boundary}"` },
      defParamCharset: "utf8",
      limits: { parts: 2, files: 1, fieldSize: 0 },
    });
    form.on("file", (name: string | undefined, stream, { mimeType }) => {
      const preface = this.#preface ?? [];
      this.#preface = undefined;
      stream.on("error", () => {}); // The form reports its errors.
      const declared = mimeType === "text/plain" ? undeclared(preface, boundary) : mimeType;
      if (name === "file") this.#found = { stream, declared };
      else this.#fail(unknownField(name));
    });
    form.on("field", (name: string | undefined) => {
      const asText = invalidForm("/file", "file must be sent as a file, with a filename");
      this.#fail(name === "file" ? asText : unknownField(name));
    });
    form.on("partsLimit", () => this.#fail(invalidForm("", ONE_PART)));
    form.on("error", (error) => {
      const why = error instanceof Error ? error.message : "unreadable";
      this.#fail(invalidForm("", `the form is malformed: ${why}`));
    });
    form.on("finish", () => {
      if (this.#stopped) return;
      if (this.#image) this.#on.whole();
      else this.#on.refused(invalidForm("/file", "file is required"));
    });
    return form;
  }

  #takeBytes(bytes: Buffer): void {
    if (this.#stopped) return;
    if (this.#withinFile) {
      this.#image?.take(bytes);
      return;
    }
    this.#besideFileBytes += bytes.length;
    if (this.#isClosed) return;
    const unpadded = this.#isPadding ? withoutPadding(bytes) : bytes;
    if (unpadded.length === 0) return;
    this.#isPadding = false;
    this.#busboy.write(unpadded);
    const given = Buffer.concat([this.#before, unpadded]);
    if (this.#found && !this.#stopped) this.#beginFile(this.#found, given);
    else {
      this.#isClosed = given.includes(this.#closing);
      this.#before = given.subarray(-this.#closing.length);
    }
    this.#found = undefined;
  }

  #takeDelimiter(): void {
    if (this.#stopped) return;
    this.#besideFileBytes += this.#delimiter.length;
    if (this.#isClosed) return;
    if (this.#withinFile) this.#image?.end();
    this.#withinFile = false;
    if (!this.#stopped) this.#busboy.write(this.#delimiter);
    this.#before = this.#delimiter;
    this.#isPadding = true;
    if (!this.#found) return;
    // A file found only now is empty, or all of it looked like the beginning of a delimiter.
    const isEmpty = this.#found.stream.readableLength === 0;
    this.#fail(isEmpty ? invalidForm("/file", "file must not be empty") : noImage());
  }

  /** @param given the last bytes that busboy got, those in which it found the file among them */
  #beginFile({ stream, declared }: FoundFile, given: Buffer): void {
    // busboy holds back what could be the beginning of a delimiter: at the end of these bytes, and at the end of those
    // before, where the end of a head and a file that begins with `-` look like one.
    const firstBytes = stream.readableLength + cutBytes(given, this.#delimiter);
    stream.resume(); // busboy waits for the end of the stream.
    this.#image = readImage(declared, {
      open: (type) => this.#openSink(type),
      refused: (refusal) => this.#fail(refusal),
    });
    this.#withinFile = true;
    this.#besideFileBytes -= firstBytes;
    this.#image.take(given.subarray(given.length - firstBytes));
  }

  /** @returns takes the file's bytes */
  #openSink(type: ImageType): (bytes: Buffer) => void {
    const sink = this.#on.image(type);
    sink.onDrain(() => {
      this.#full = false;
      this.#drained();
    });
    return (bytes) => {
      this.#full = !sink.write(bytes);
    };
  }
}

/** The line of a delimiter may end in white space, which busboy does not know. RFC 2046, 5.1.1. */
function withoutPadding(bytes: Buffer): Buffer {
  const end = bytes.findIndex((byte) => byte !== SPACE && byte !== TAB);
  return end === -1 ? NOTHING : bytes.subarray(end);
}

/** busboy reports text/plain also for a part without a readable Content-Type; the part's head tells the two apart. */
function undeclared(preface: Buffer[], boundary: string): string | undefined {
  const text = `\r\n${Buffer.concat(preface).toString("latin1")}`;
  const delimiter = `\r\n--${boundary}`;
  const begin = text.indexOf(delimiter) + delimiter.length;
  const head = text.slice(begin, text.indexOf("\r\n\r\n", begin));
  return /\r\ncontent-type:[ \t]*[^\s]/i.test(head) ? "text/plain" : undefined;
}

type ImageReading = ReturnType<typeof readImage>;

/** A file is passed on once it has this size, or has ended: a client that hardly sends takes no upstream connection. */
const HELD_BYTES = 65_536;

/** Passes an image on once there is enough to send. Any other file is refused as soon as its magic bytes are known. */
function readImage(
  declared: string | undefined,
  on: { open(type: ImageType): (bytes: Buffer) => void; refused(refusal: Refusal): void },
) {
  let fileBytes = 0;
  let held: Buffer[] = [];
  let type: ImageType | undefined;
  let pass: ((bytes: Buffer) => void) | undefined;
  /** @returns false if the file was refused */
  const recognize = (): boolean => {
    if (type !== undefined) return true;
    held = [Buffer.concat(held)];
    type = imageTypeOf(held[0]!);
    if (type === undefined) on.refused(noImage());
    else if (declaresImage(declared, type)) return true;
    else on.refused(wrongMedia(`file is declared as ${shown(declared ?? "")} but is ${type}`));
    return false;
  };
  const open = () => {
    if (!recognize() || type === undefined) return;
    pass = on.open(type);
    for (const bytes of held) pass(bytes);
    held = [];
  };
  const take = (bytes: Buffer) => {
    fileBytes += bytes.length;
    if (fileBytes > FILE_BYTES_MAX) return on.refused(fileTooLarge());
    if (pass) return pass(bytes);
    held.push(bytes);
    if (fileBytes >= HELD_BYTES) open();
    else if (fileBytes >= MAGIC_BYTES) recognize();
  };
  const end = (): void => {
    if (!pass) open();
  };
  return { take, end };
}

/** Events of a splitter, in the order of the bytes. */
interface SplitEvents {
  /** Bytes that belong to no delimiter, at least one. */
  between(bytes: Buffer): void;
  delimiter(): void;
}

const CR = 0x0d;

/**
 * Finds a delimiter in the chunks themselves; a possible beginning at a chunk's end is held back and copied behind it. The result does not
 * depend on where the chunks are cut.
 * @param delimiter begins with its only CR: matches cannot overlap @param before bytes in front of the first chunk
 */
export function splitAt(delimiter: Buffer, before: Buffer, on: SplitEvents) {
  let held = before;
  const push = (chunk: Buffer): void => {
    const bytes = held.length === 0 ? chunk : Buffer.concat([held, chunk]);
    let begin = 0;
    for (let at = bytes.indexOf(delimiter); at !== -1; at = bytes.indexOf(delimiter, begin)) {
      if (at > begin) on.between(bytes.subarray(begin, at));
      on.delimiter();
      begin = at + delimiter.length;
    }
    const end = bytes.length - cutBytes(bytes.subarray(begin), delimiter);
    held = Buffer.from(bytes.subarray(end));
    if (end > begin) on.between(bytes.subarray(begin, end));
  };
  /** Reports the bytes that were held back because they could have become a delimiter. */
  const end = (): void => {
    if (held.length > 0) on.between(held);
  };
  return { push, end };
}

/** The number of bytes at the end of `bytes` that are the beginning of a cut delimiter. */
export function cutBytes(bytes: Buffer, delimiter: Buffer): number {
  const last = bytes.subarray(Math.max(0, bytes.length - delimiter.length + 1));
  const at = last.lastIndexOf(CR);
  if (at === -1) return 0;
  const cut = last.subarray(at);
  return delimiter.subarray(0, cut.length).equals(cut) ? cut.length : 0;
}

/** Bytes that a form may have beside its file: preamble, part headers, boundaries, epilogue. */
export const FORM_OVERHEAD_BYTES_MAX = 65_536;
export const UPLOAD_BYTES_MAX = FILE_BYTES_MAX + FORM_OVERHEAD_BYTES_MAX;

export function invalidForm(path: string, message: string): Refusal {
  return refuse("invalid_request", { text: `Invalid request: ${message}`, details: [{ path, message }] });
}

const ONE_PART = "the form must have one part only, the image in field file";

function unknownField(name = ""): Refusal {
  if (name === "") return invalidForm("/", ONE_PART);
  const { path, message } = unknownName("", name, ["file"]);
  return invalidForm(path, `${message}; ${ONE_PART}`);
}

export function wrongMedia(why: string): Refusal {
  return refuse("unsupported_media_type", { text: `Unsupported media type: ${why}` });
}

function noImage(): Refusal {
  return wrongMedia("file must be a JPEG, PNG, WebP or GIF image");
}

export function fileTooLarge(): Refusal {
  return refuse("payload_too_large", {
    text: `Request body too large: file may have at most ${FILE_BYTES_MAX} bytes`,
    details: [{ path: "/file", message: `file may have at most ${FILE_BYTES_MAX} bytes` }],
  });
}

function formTooLarge(): Refusal {
  const message = `the form may have at most ${FORM_OVERHEAD_BYTES_MAX} bytes beside its file`;
  return refuse("payload_too_large", {
    text: `Request body too large: ${message}`,
    details: [{ path: "", message }],
  });
}

export type ImageType = "image/jpeg" | "image/png" | "image/webp" | "image/gif";

export const MAGIC_BYTES = 12;

const NAMES: Readonly<Record<string, ImageType>> = {
  "image/jpeg": "image/jpeg",
  "image/jpg": "image/jpeg",
  "image/pjpeg": "image/jpeg",
  "image/x-jpeg": "image/jpeg",
  "image/x-jpg": "image/jpeg",
  "image/x-citrix-jpeg": "image/jpeg",
  "image/png": "image/png",
  "image/x-png": "image/png",
  "image/x-citrix-png": "image/png",
  "image/x-webp": "image/webp",
  "image/x-gif": "image/gif",
  "image/webp": "image/webp",
  "image/gif": "image/gif",
};

/** Clients' defaults for unknown types: curl, retrofit, S3. */
const CLAIMS_NOTHING = new Set(["application/octet-stream", "binary/octet-stream", "image/*", "*/*"]);

/** By the first `MAGIC_BYTES` bytes, whatever the name says. */
export function imageTypeOf(head: Uint8Array): ImageType | undefined {
  const text = String.fromCharCode(...head.subarray(0, MAGIC_BYTES));
  if (text.startsWith("\xff\xd8\xff")) return "image/jpeg";
  if (text.startsWith("\x89PNG\r\n\x1a\n")) return "image/png";
  if (text.startsWith("GIF87a") || text.startsWith("GIF89a")) return "image/gif";
  // RIFF is a family of formats.
  if (text.startsWith("RIFF") && text.startsWith("WEBP", 8)) return "image/webp";
  return undefined;
}

/** @param declared media type in lower case; undefined without Content-Type */
export function declaresImage(declared: string | undefined, actual: ImageType): boolean {
  if (declared === undefined || CLAIMS_NOTHING.has(declared)) return true;
  return Object.hasOwn(NAMES, declared) && NAMES[declared] === actual;
}
