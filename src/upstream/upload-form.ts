import type { IncomingHttpHeaders } from "node:http";
import type { Readable } from "node:stream";
import { MIMEType } from "node:util";
import busboy from "busboy";
import { type Refusal, refuse } from "../core/errors.ts";
import { declaresImage, type ImageType, imageTypeOf, MAGIC_BYTES } from "../core/images.ts";
import { isIdentity } from "../core/media.ts";
import { pointerTo, shown } from "../core/problems.ts";
import { FILE_BYTES_MAX } from "../core/request-limits.ts";
import { cutBytes, splitAt } from "./upload-split.ts";

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
export function parseForm(boundary: string, on: FormEvents): FormParser {
  const delimiter = Buffer.from(`\r\n--${boundary}`);
  let stopped = false;
  let receivedBytes = 0;
  /** All bytes up to and with those in which the file begins; undefined after that. */
  let preface: Buffer[] | undefined = [];
  /** The last bytes that busboy was given before it found the file. */
  let before = NOTHING;
  /** A file that busboy has just found. */
  let found: FoundFile | undefined;
  let image: ImageReading | undefined;
  let withinFile = false;
  let full = false;
  let drained = () => {};
  const fail = (refusal: Refusal) => {
    if (!stopped) on.refused(refusal);
  };
  // busboy counts boundaries, and so sees two parts also where a line of the file only begins like a boundary.
  const form = busboy({
    headers: { "content-type": `multipart/form-data; boundary="${boundary}"` },
    defParamCharset: "utf8",
    limits: { parts: 2, files: 1, fieldSize: 0 },
  });
  form.on("file", (name: string | undefined, stream, { mimeType }) => {
    const declared =
      mimeType === "text/plain" ? undeclared(Buffer.concat(preface ?? []), boundary) : mimeType;
    preface = undefined;
    stream.on("error", () => {}); // The form says what is wrong with it.
    if (name === "file") found = { stream, declared };
    else fail(unknownField(name));
  });
  form.on("field", (name: string | undefined) =>
    fail(
      name === "file"
        ? invalidForm("/file", "file must be sent as a file, with a filename")
        : unknownField(name),
    ),
  );
  form.on("partsLimit", () =>
    fail(invalidForm("", "the form must have one part only, the image in field file")),
  );
  form.on("error", (error) =>
    fail(invalidForm("", `the form is malformed: ${error instanceof Error ? error.message : "unreadable"}`)),
  );
  form.on("finish", () => {
    if (stopped) return;
    if (image) on.whole();
    else on.refused(invalidForm("/file", "file is required"));
  });

  const beginFile = ({ stream, declared }: FoundFile, bytes: Buffer) => {
    // busboy holds back what could be the beginning of a delimiter, also where it is known to be none: at the end of
    // these bytes, and at the end of those before, where a head's end and a file that begins with `-` look like one.
    const given = Buffer.concat([before, bytes]);
    const firstBytes = stream.readableLength + cutBytes(given, delimiter);
    stream.resume(); // busboy waits for its end.
    image = readImage(declared, {
      open(type) {
        const sink = on.image(type);
        sink.onDrain(() => {
          full = false;
          drained();
        });
        return (bytes) => {
          full = !sink.write(bytes);
        };
      },
      refused: fail,
    });
    withinFile = true;
    image.take(given.subarray(given.length - firstBytes));
  };
  // As for busboy, a form begins as if with the end of a line.
  const split = splitAt(delimiter, LINE_END, {
    between(bytes) {
      if (stopped) return;
      if (withinFile) return image?.take(bytes);
      form.write(bytes);
      if (found && !stopped) beginFile(found, bytes);
      else before = Buffer.concat([before, bytes]).subarray(-delimiter.length);
      found = undefined;
    },
    delimiter() {
      if (stopped) return;
      if (withinFile) image?.end();
      withinFile = false;
      if (!stopped) form.write(delimiter);
      before = delimiter;
      // Found only now: it is empty, or all of it looked like the beginning of a delimiter.
      if (found)
        fail(found.stream.readableLength > 0 ? noImage() : invalidForm("/file", "file must not be empty"));
    },
  });

  const write = (chunk: Buffer) => {
    receivedBytes += chunk.length;
    if (receivedBytes > FILE_BYTES_MAX + FORM_OVERHEAD_BYTES_MAX) {
      fail(fileTooLarge());
      return false;
    }
    preface?.push(chunk);
    split.push(chunk);
    if (preface && receivedBytes > FORM_OVERHEAD_BYTES_MAX)
      fail(invalidForm("/file", `file must begin within the first ${FORM_OVERHEAD_BYTES_MAX} bytes`));
    return !full;
  };
  const end = () => {
    split.end();
    if (!stopped) form.end();
  };
  const stop = () => {
    stopped = true;
    preface = undefined;
    form.destroy();
  };
  const onDrain = (listener: () => void) => {
    drained = listener;
  };
  return { write, end, stop, onDrain };
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
function undeclared(preface: Buffer, boundary: string): string | undefined {
  const text = `\r\n${preface.toString("latin1")}`;
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
