import type { Refusal } from "../domain/errors.ts";
import { declaresImage, type ImageType, imageTypeOf, MAGIC_BYTES } from "../domain/images.ts";
import { FILE_BYTES_MAX } from "../domain/limits.ts";
import { shown } from "../domain/problems.ts";
import { fileTooLarge, noImage, wrongMedia } from "./upload-refusals.ts";

/** Takes the bytes of a file in order, at least one. */
export interface ImageReading {
  take(bytes: Buffer): void;
  end(): void;
}

/** A file is passed on once it has this size, or has ended: a client that hardly sends takes no upstream connection. */
const HELD_BYTES = 65_536;

/** Passes an image on once there is enough to send. Any other file is refused as soon as its magic bytes are known. */
export function readImage(
  declared: string | undefined,
  on: { open(type: ImageType): (bytes: Buffer) => void; refused(refusal: Refusal): void },
): ImageReading {
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
  const end = () => {
    if (!pass) open();
  };
  return { take, end };
}
