import type { IncomingHttpHeaders, IncomingMessage } from "node:http";
import type { Readable, Writable } from "node:stream";
import { MIMEType } from "node:util";
import busboy from "busboy";
import { type Refusal, refuse } from "../core/errors.ts";
import { declaresImage, type ImageType, imageTypeOf, MAGIC_BYTES } from "../core/images.ts";

/** Largest file, inclusive. Spec 4.9, DESIGN 2. */
export const FILE_BYTES_MAX = 10_485_760;

/** What a form may have beyond its file: preamble, part headers, boundaries, epilogue. */
export const FORM_OVERHEAD_BYTES_MAX = 65_536;

/** RFC 2046, 5.1.1: 1 to 70 characters of this set, the last not a space. */
const BOUNDARY = /^[0-9A-Za-z'()+_,\-./:=? ]{0,69}[0-9A-Za-z'()+_,\-./:=?]$/;

/** What a form under way reports. Nothing is reported once it was stopped. */
export interface FormEvents {
  /** The file began and its magic bytes are good: its bytes go to the stream that this returns. */
  image(type: ImageType): Writable;
  /** The form ended and was valid, every byte of the file is in the stream. */
  whole(): void;
  refused(refusal: Refusal): void;
  gone(): void;
}

export interface FormReading {
  /** True while it is the client that has to send; false while back pressure holds, and after the end. */
  waitsForClient(): boolean;
  /** Lets go of the request: paused, not destroyed, fit to be drained. */
  stop(): void;
}

interface Progress {
  stopped: boolean;
  blocked: boolean;
  ended: boolean;
  receivedBytes: number;
  /** What came before the file's first byte; undefined once the file began. */
  preface: Buffer[] | undefined;
}

const ignore = () => {};

/** The boundary of a request that may be read as a form, or why it may not. Reads nothing of the body. */
export function formBoundary(headers: IncomingHttpHeaders): string | Refusal {
  if (headers["content-encoding"] !== undefined) return wrongMedia("Content-Encoding is not supported");
  const type = mediaType(headers["content-type"]);
  if (type?.essence !== "multipart/form-data") return wrongMedia("Content-Type must be multipart/form-data");
  const boundary = type.params.get("boundary");
  if (boundary === null) return invalidForm("", "Content-Type must name the boundary of the form");
  if (!BOUNDARY.test(boundary)) return invalidForm("", "the boundary must be 1 to 70 characters of RFC 2046");
  const length = Number(headers["content-length"] ?? 0);
  return length > FILE_BYTES_MAX + FORM_OVERHEAD_BYTES_MAX ? fileTooLarge() : boundary;
}

/**
 * Reads the body of `req` as a form of exactly one part, an image in field `file`, with back pressure.
 * @param boundary as `formBoundary` gave it
 * @param idleTimeoutMs longest wait for the client's next bytes; time under back pressure does not count
 */
export function readForm(
  req: IncomingMessage,
  boundary: string,
  idleTimeoutMs: number,
  on: FormEvents,
): FormReading {
  const progress: Progress = {
    stopped: false,
    blocked: false,
    ended: false,
    receivedBytes: 0,
    preface: [],
  };
  const waitsForClient = () => !progress.blocked && !progress.ended;
  const idle = setTimeout(() => {
    if (waitsForClient()) on.refused(refuse("request_timeout"));
  }, idleTimeoutMs);
  const form = parseForm(boundary, progress, on);
  form.on("drain", () => {
    progress.blocked = false;
    if (progress.stopped) return;
    idle.refresh();
    req.resume();
  });
  const onData = (chunk: Buffer) => {
    idle.refresh();
    const refusal = account(progress, chunk);
    if (refusal) return on.refused(refusal);
    progress.blocked = !form.write(chunk);
    if (!progress.stopped && progress.blocked) req.pause();
    if (!progress.stopped && (progress.preface?.length ?? 0) > 0 && progress.receivedBytes > FORM_OVERHEAD_BYTES_MAX)
      on.refused(invalidForm("/file", `file must begin within the first ${FORM_OVERHEAD_BYTES_MAX} bytes`));
  };
  const onEnd = () => {
    progress.ended = true;
    form.end();
  };
  const onClose = () => on.gone();
  // Stays for good: an abort's error may be under way when the other listeners go, and would be uncaught.
  req.on("error", ignore);
  req.on("data", onData).on("end", onEnd).on("aborted", onClose);
  req.socket.on("close", onClose);
  const stop = () => {
    if (progress.stopped) return;
    progress.stopped = true;
    clearTimeout(idle);
    req.off("data", onData).off("end", onEnd).off("aborted", onClose);
    req.socket.off("close", onClose);
    if (!progress.ended) req.pause();
    form.destroy();
  };
  return { waitsForClient, stop };
}
