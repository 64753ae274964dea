import type { IncomingHttpHeaders } from "node:http";
import type { Readable } from "node:stream";
import { MIMEType } from "node:util";
import busboy from "busboy";
import { isIdentity } from "../domain/content-encoding.ts";
import { type Refusal, refuse } from "../domain/errors.ts";
import { declaresImage, type ImageType, imageTypeOf, MAGIC_BYTES } from "../domain/images.ts";
import { pointerTo, shown } from "../domain/problems.ts";
import { FILE_BYTES_MAX } from "../domain/request-limits.ts";
import { cutBytes, type Splitter, splitAt } from "./upload-split.ts";

/** What a form may have beyond its file: preamble, part headers, boundaries, epilogue. */
export const FORM_OVERHEAD_BYTES_MAX = 65_536;

/** RFC 2046, 5.1.1: 1 to 70 characters of this set, the last not a space. */
const BOUNDARY = /^[0-9A-Za-z'()+_,\-./:=? ]{0,69}[0-9A-Za-z'()+_,\-./:=?]$/;

/** Longer media types are refused unread: Node takes time with the square of the spaces in one. */
const TYPE_CHARS_MAX = 256;

const LINE_END = Buffer.from("\r\n");
const NOTHING = Buffer.alloc(0);

/** Takes the bytes of a file, one write after the other. */
export interface FileSink {
  /** Owns the bytes from now on. False: it is full until it has drained. */
  write(bytes: Buffer): boolean;
  onDrain(listener: () => void): void;
}

/** What a form under way reports. */
export interface FormEvents {
  /** The file began and its magic bytes are good: its bytes go where this says. */
  image(type: ImageType): FileSink;
  /** The form ended and was valid; every byte of the file is written. */
  whole(): void;
  refused(refusal: Refusal): void;
}

/** Takes the bytes of a form. Nothing is reported any more once it was stopped. */
export interface FormParser {
  /** False: the image's sink is full, the next bytes are to come after `onDrain`. */
  write(chunk: Buffer): boolean;
  end(): void;
  onDrain(listener: () => void): void;
  stop(): void;
}

/** The boundary of a request that may be read as a form, or why it may not. Looks at headers only. */
export function formBoundary(headers: IncomingHttpHeaders): string | Refusal {
  if (!isIdentity(headers["content-encoding"])) return wrongMedia("Content-Encoding is not supported");
  const type = mediaType(headers["content-type"]);
  if (type?.essence !== "multipart/form-data") return wrongMedia("Content-Type must be multipart/form-data");
  const boundary = type.params.get("boundary");
  if (boundary === null) return invalidForm("", "Content-Type must name the boundary of the form");
  if (!BOUNDARY.test(boundary))
    return invalidForm("", "boundary must be 1 to 70 of the characters in RFC 2046");
  const length = Number(headers["content-length"] ?? 0);
  return length > FILE_BYTES_MAX + FORM_OVERHEAD_BYTES_MAX ? fileTooLarge() : boundary;
}

/**
 * A parser of forms that have exactly one part, an image in field `file`. busboy reads all but the file: of that it gets
 * no more than what came along with the part's head.
 * @param boundary as `formBoundary` gave it
 */
export const parseForm = (boundary: string, on: FormEvents): FormParser => new ImageForm(boundary, on);

class ImageForm implements FormParser {
  readonly #delimiter: Buffer;
  readonly #on: FormEvents;
  readonly #busboy: busboy.Busboy;
  readonly #split: Splitter;
  #stopped = false;
  #receivedBytes = 0;
  /** All bytes up to and with those in which the file begins; undefined after that. */
  #preface: Buffer[] | undefined = [];
  /** The last bytes that busboy was given before it found the file. */
  #before: Buffer = NOTHING;
  /** A file that busboy has just found. */
  #found: FoundFile | undefined;
  #image: ImageReading | undefined;
  #withinFile = false;
  #full = false;
  #drained = () => {};

  constructor(boundary: string, on: FormEvents) {
    this.#delimiter = Buffer.from(`\r\n--${boundary}`);
    this.#on = on;
    this.#busboy = this.#openBusboy(boundary);
    // As for busboy, a form begins as if with the end of a line.
    this.#split = splitAt(this.#delimiter, LINE_END, {
      between: (bytes) => this.#takeBytes(bytes),
      delimiter: () => this.#takeDelimiter(),
    });
  }

  write(chunk: Buffer): boolean {
    this.#receivedBytes += chunk.length;
    if (this.#receivedBytes > FILE_BYTES_MAX + FORM_OVERHEAD_BYTES_MAX) {
      this.#fail(fileTooLarge());
      return false;
    }
    this.#preface?.push(chunk);
    this.#split.push(chunk);
    if (this.#preface && this.#receivedBytes > FORM_OVERHEAD_BYTES_MAX) {
      const message = `file must begin within the first ${FORM_OVERHEAD_BYTES_MAX} bytes`;
      this.#fail(invalidForm("/file", message));
    }
    return !this.#full;
  }

  end(): void {
    this.#split.end();
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

  #fail(refusal: Refusal): void {
    if (!this.#stopped) this.#on.refused(refusal);
  }

  #openBusboy(boundary: string): busboy.Busboy {
    // busboy counts boundaries, and so sees two parts also where a line of the file only begins like a boundary.
    const form = busboy({
      headers: { "content-type": `multipart/form-data; boundary="${boundary}"` },
      defParamCharset: "utf8",
      limits: { parts: 2, files: 1, fieldSize: 0 },
    });
    form.on("file", (name: string | undefined, stream, { mimeType }) => {
      const preface = this.#preface ?? [];
      this.#preface = undefined;
      stream.on("error", () => {}); // The form says what is wrong with it.
      const declared = mimeType === "text/plain" ? undeclared(preface, boundary) : mimeType;
      if (name === "file") this.#found = { stream, declared };
      else this.#fail(unknownField(name));
    });
    form.on("field", (name: string | undefined) => {
      const asText = invalidForm("/file", "file must be sent as a file, with a filename");
      this.#fail(name === "file" ? asText : unknownField(name));
    });
    form.on("partsLimit", () =>
      this.#fail(invalidForm("", "the form must have one part only, the image in field file")),
    );
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
    this.#busboy.write(bytes);
    if (this.#found && !this.#stopped) this.#beginFile(this.#found, bytes);
    else this.#before = Buffer.concat([this.#before, bytes]).subarray(-this.#delimiter.length);
    this.#found = undefined;
  }

  #takeDelimiter(): void {
    if (this.#stopped) return;
    if (this.#withinFile) this.#image?.end();
    this.#withinFile = false;
    if (!this.#stopped) this.#busboy.write(this.#delimiter);
    this.#before = this.#delimiter;
    if (!this.#found) return;
    // Found only now: it is empty, or all of it looked like the beginning of a delimiter.
    const isEmpty = this.#found.stream.readableLength === 0;
    this.#fail(isEmpty ? invalidForm("/file", "file must not be empty") : noImage());
  }

  #beginFile({ stream, declared }: FoundFile, bytes: Buffer): void {
    // busboy holds back what could be the beginning of a delimiter, also where it is known to be none: at the end of
    // these bytes, and at the end of those before, where a head's end and a file that begins with `-` look like one.
    const given = Buffer.concat([this.#before, bytes]);
    const firstBytes = stream.readableLength + cutBytes(given, this.#delimiter);
    stream.resume(); // busboy waits for its end.
    this.#image = readImage(declared, {
      open: (type) => this.#openSink(type),
      refused: (refusal) => this.#fail(refusal),
    });
    this.#withinFile = true;
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

interface FoundFile {
  stream: Readable;
  declared: string | undefined;
}

/** Takes the bytes of a file in order; there is at least one. */
interface ImageReading {
  take(bytes: Buffer): void;
  end(): void;
}

/** A file is passed on once it has so many bytes, or has ended: a client that hardly sends takes no connection upstream. */
const HELD_BYTES = 65_536;

/** Passes a file on. It is refused as soon as its magic bytes are known, and opened once there is enough to send. */
function readImage(
  declared: string | undefined,
  on: { open(type: ImageType): (bytes: Buffer) => void; refused(refusal: Refusal): void },
): ImageReading {
  let fileBytes = 0;
  let held: Buffer[] = [];
  let type: ImageType | undefined;
  let pass: ((bytes: Buffer) => void) | undefined;
  /** @returns whether the file is of a type that is taken */
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
  const end = () => {
    if (!pass) open();
  };
  return { take, end };
}

/** busboy says text/plain also where a part has no Content-Type, or an unreadable one; only its head can tell. */
function undeclared(preface: Buffer[], boundary: string): string | undefined {
  const text = `\r\n${Buffer.concat(preface).toString("latin1")}`;
  const delimiter = `\r\n--${boundary}\r\n`;
  const begin = text.indexOf(delimiter) + delimiter.length - 2;
  const head = text.slice(begin, text.indexOf("\r\n\r\n", begin));
  return /\r\ncontent-type:/i.test(head) ? "text/plain" : undefined;
}

function mediaType(header: string | undefined): MIMEType | undefined {
  try {
    return header === undefined || header.length > TYPE_CHARS_MAX ? undefined : new MIMEType(header);
  } catch {
    return undefined;
  }
}

function invalidForm(path: string, message: string): Refusal {
  return refuse("invalid_request", { text: `Invalid request: ${message}`, details: [{ path, message }] });
}

function unknownField(name: string | undefined): Refusal {
  return invalidForm(
    pointerTo(name ?? ""),
    "unknown field; the form must have one part only, the image in field file",
  );
}

function wrongMedia(why: string): Refusal {
  return refuse("unsupported_media_type", { text: `Unsupported media type: ${why}` });
}

function noImage(): Refusal {
  return wrongMedia("file must be a JPEG, PNG, WebP or GIF image");
}

function fileTooLarge(): Refusal {
  return refuse("payload_too_large", {
    text: `Request body too large: file may have at most ${FILE_BYTES_MAX} bytes`,
    details: [{ path: "/file", message: `file may have at most ${FILE_BYTES_MAX} bytes` }],
  });
}
