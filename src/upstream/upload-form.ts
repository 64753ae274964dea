import type { IncomingHttpHeaders } from "node:http";
import type { Readable, Writable } from "node:stream";
import { MIMEType } from "node:util";
import busboy from "busboy";
import { type Refusal, refuse } from "../core/errors.ts";
import { declaresImage, type ImageType, imageTypeOf, MAGIC_BYTES } from "../core/images.ts";
import { FILE_BYTES_MAX } from "../core/request-limits.ts";

/** What a form may have beyond its file: preamble, part headers, boundaries, epilogue. */
export const FORM_OVERHEAD_BYTES_MAX = 65_536;

/** RFC 2046, 5.1.1: 1 to 70 characters of this set, the last not a space. */
const BOUNDARY = /^[0-9A-Za-z'()+_,\-./:=? ]{0,69}[0-9A-Za-z'()+_,\-./:=?]$/;

const NAME_LENGTH_MAX = 100;
/** Longer media types are refused unread: Node takes time with the square of the spaces in one. */
const TYPE_CHARS_MAX = 256;

/** What a form under way reports. */
export interface FormEvents {
  /** The file began and its magic bytes are good: its bytes go to the stream that this returns. */
  image(type: ImageType): Writable;
  /** The form ended and was valid; every byte of the file is in the stream. */
  whole(): void;
  refused(refusal: Refusal): void;
}

/** Takes the bytes of a form. Nothing is reported any more once it was stopped. */
export interface FormParser {
  /** False: the stream of the image is full, the next bytes are to come after `onDrain`. */
  write(chunk: Buffer): boolean;
  end(): void;
  onDrain(listener: () => void): void;
  stop(): void;
}

/** The boundary of a request that may be read as a form, or why it may not. Looks at headers only. */
export function formBoundary(headers: IncomingHttpHeaders): string | Refusal {
  if (headers["content-encoding"] !== undefined) return wrongMedia("Content-Encoding is not supported");
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
 * A parser of forms that have exactly one part, an image in field `file`.
 * @param boundary as `formBoundary` gave it
 */
export function parseForm(boundary: string, on: FormEvents): FormParser {
  let stopped = false;
  let receivedBytes = 0;
  /** All bytes up to and with those in which the file begins; undefined after that. */
  let preface: Buffer[] | undefined = [];
  const fail = (refusal: Refusal) => {
    if (!stopped) on.refused(refusal);
  };
  // busboy counts boundaries, and so sees two parts also where a line of the file only begins like a boundary.
  const form = busboy({
    headers: { "content-type": `multipart/form-data; boundary="${boundary}"` },
    defParamCharset: "utf8",
    limits: { parts: 2, files: 1, fieldSize: 0 },
  });
  form.on("file", (name: string | undefined, file, { mimeType }) => {
    const declared =
      mimeType === "text/plain" ? undeclared(Buffer.concat(preface ?? []), boundary) : mimeType;
    preface = undefined;
    file.on("error", () => {}); // The form says what is wrong with it.
    if (name === "file") takeFile(file, declared, { ...on, refused: fail }, () => stopped);
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
    if (preface) on.refused(invalidForm("/file", "file is required"));
    else on.whole();
  });

  const write = (chunk: Buffer) => {
    receivedBytes += chunk.length;
    if (receivedBytes > FILE_BYTES_MAX + FORM_OVERHEAD_BYTES_MAX) {
      fail(fileTooLarge());
      return false;
    }
    preface?.push(chunk);
    const ready = form.write(chunk);
    if (preface && receivedBytes > FORM_OVERHEAD_BYTES_MAX)
      fail(invalidForm("/file", `file must begin within the first ${FORM_OVERHEAD_BYTES_MAX} bytes`));
    return ready;
  };
  const stop = () => {
    stopped = true;
    preface = undefined;
    form.destroy();
  };
  return { write, stop, end: () => form.end(), onDrain: (listener) => form.on("drain", listener) };
}

/** Passes a file on from the moment that its magic bytes are known and good. */
function takeFile(
  file: Readable,
  declared: string | undefined,
  on: FormEvents,
  stopped: () => boolean,
): void {
  let fileBytes = 0;
  let magic = Buffer.alloc(0);
  let sink: Writable | undefined;
  const pass = (to: Writable, chunk: Buffer) => {
    if (to.write(chunk)) return;
    file.pause();
    to.once("drain", () => file.resume());
  };
  const begin = () => {
    const type = imageTypeOf(magic);
    if (type === undefined) return on.refused(wrongMedia("file must be a JPEG, PNG, WebP or GIF image"));
    if (!declaresImage(declared, type))
      return on.refused(wrongMedia(`file is declared as ${declared} but is ${type}`));
    sink = on.image(type);
    pass(sink, magic);
  };
  file.on("data", (chunk: Buffer) => {
    if (stopped()) return;
    fileBytes += chunk.length;
    if (fileBytes > FILE_BYTES_MAX) return on.refused(fileTooLarge());
    if (sink) return pass(sink, chunk);
    magic = Buffer.concat([magic, chunk]);
    if (magic.length >= MAGIC_BYTES) begin();
  });
  file.on("end", () => {
    if (stopped() || sink) return;
    if (fileBytes === 0) on.refused(invalidForm("/file", "file must not be empty"));
    else begin();
  });
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
  const field = (name ?? "").slice(0, NAME_LENGTH_MAX).toWellFormed();
  const pointer = `/${field.replaceAll("~", "~0").replaceAll("/", "~1")}`;
  return invalidForm(pointer, "unknown field; the form must have one part only, the image in field file");
}

function wrongMedia(why: string): Refusal {
  return refuse("unsupported_media_type", { text: `Unsupported media type: ${why}` });
}

function fileTooLarge(): Refusal {
  return refuse("payload_too_large", {
    text: `Request body too large: file may have at most ${FILE_BYTES_MAX} bytes`,
    details: [{ path: "/file", message: `file may have at most ${FILE_BYTES_MAX} bytes` }],
  });
}
