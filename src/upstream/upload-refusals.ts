import { type Refusal, refuse } from "../domain/errors.ts";
import { FILE_BYTES_MAX } from "../domain/limits.ts";
import { unknownName } from "../domain/problems.ts";

/** Bytes that a form may have beside its file: preamble, part headers, boundaries, epilogue. */
export const FORM_OVERHEAD_BYTES_MAX = 65_536;
export const UPLOAD_BYTES_MAX = FILE_BYTES_MAX + FORM_OVERHEAD_BYTES_MAX;

export function invalidForm(path: string, message: string): Refusal {
  return refuse("invalid_request", { text: `Invalid request: ${message}`, details: [{ path, message }] });
}

/** The form has one part, `file`. */
export function unknownField(name = ""): Refusal {
  const { path, message } = unknownName("", name, ["file"]);
  return invalidForm(path, `${message}; the form must have one part only, the image in field file`);
}

export function wrongMedia(why: string): Refusal {
  return refuse("unsupported_media_type", { text: `Unsupported media type: ${why}` });
}

export function noImage(): Refusal {
  return wrongMedia("file must be a JPEG, PNG, WebP or GIF image");
}

export function fileTooLarge(): Refusal {
  return refuse("payload_too_large", {
    text: `Request body too large: file may have at most ${FILE_BYTES_MAX} bytes`,
    details: [{ path: "/file", message: `file may have at most ${FILE_BYTES_MAX} bytes` }],
  });
}

export function formTooLarge(): Refusal {
  const message = `the form may have at most ${FORM_OVERHEAD_BYTES_MAX} bytes beside its file`;
  return refuse("payload_too_large", {
    text: `Request body too large: ${message}`,
    details: [{ path: "", message }],
  });
}
