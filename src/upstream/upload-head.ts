import type { IncomingHttpHeaders } from "node:http";
import { MIMEType } from "node:util";
import type { Refusal } from "../domain/errors.ts";
import { isIdentity } from "../domain/limits.ts";
import { fileTooLarge, invalidForm, UPLOAD_BYTES_MAX, wrongMedia } from "./upload-refusals.ts";

/** RFC 2046, 5.1.1: 1 to 70 characters of this set, the last not a space. */
const BOUNDARY = /^[0-9A-Za-z'()+_,\-./:=? ]{0,69}[0-9A-Za-z'()+_,\-./:=?]$/;

/** Longer media types are refused unread: Node's time grows with the square of the spaces in one. */
const TYPE_CHARS_MAX = 256;

/** The boundary of a request that may be read as a form, or why it may not, by its headers alone. */
export function formBoundary(headers: IncomingHttpHeaders): string | Refusal {
  if (!isIdentity(headers["content-encoding"])) return wrongMedia("Content-Encoding is not supported");
  const type = mediaType(headers["content-type"]);
  if (type?.essence !== "multipart/form-data") return wrongMedia("Content-Type must be multipart/form-data");
  const boundary = type.params.get("boundary");
  if (boundary === null) return invalidForm("", "Content-Type must name the boundary of the form");
  if (!BOUNDARY.test(boundary))
    return invalidForm("", "boundary must be 1 to 70 of the characters in RFC 2046");
  const length = Number(headers["content-length"] ?? 0);
  return length > UPLOAD_BYTES_MAX ? fileTooLarge() : boundary;
}

function mediaType(header: string | undefined): MIMEType | undefined {
  try {
    return header === undefined || header.length > TYPE_CHARS_MAX ? undefined : new MIMEType(header);
  } catch {
    return undefined;
  }
}
