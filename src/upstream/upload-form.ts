import type { Readable } from "node:stream";
import busboy from "busboy";
import type { Refusal } from "../domain/errors.ts";
import type { ImageType } from "../domain/images.ts";
import { type ImageReading, readImage } from "./upload-image.ts";
import {
  FORM_OVERHEAD_BYTES_MAX,
  formTooLarge,
  invalidForm,
  noImage,
  unknownField,
} from "./upload-refusals.ts";
import { cutBytes, type Splitter, splitAt } from "./upload-split.ts";

const LINE_END = Buffer.from("\r\n");
const NOTHING = Buffer.alloc(0);
const SPACE = 0x20;
const TAB = 0x09;

/** Takes the bytes of a file, one write after the other. */
export interface FileSink {
  /** Owns the bytes from now on. @returns false if it is full until it has drained */
  write(bytes: Buffer): boolean;
  onDrain(listener: () => void): void;
}

/** Events of a form while it is parsed. */
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

/**
 * Parses forms that have exactly one part, an image in field `file`. busboy reads all but the file: of the file it gets no
 * more than what arrived together with the part's head. Nothing is reported after `stop`.
 */
export class ImageForm {
  readonly #delimiter: Buffer;
  /** The delimiter that ends the form. What comes behind it, the epilogue, is only counted. */
  readonly #closing: Buffer;
  readonly #on: FormEvents;
  readonly #busboy: busboy.Busboy;
  readonly #split: Splitter;
  #stopped = false;
  /** Without the line end that is put in front of the form. */
  #besideFileBytes = -LINE_END.length;
  #isClosed = false;
  /** All bytes up to the chunk in which the file begins, that chunk included; undefined after that. */
  #preface: Buffer[] | undefined = [];
  /** The last bytes that busboy got before it found the file. */
  #before: Buffer = NOTHING;
  /** A file that busboy has just found. */
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
