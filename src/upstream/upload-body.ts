import type { IncomingMessage } from "node:http";
import { refuse } from "../domain/errors.ts";
import { type FormEvents, ImageForm } from "./upload-form.ts";

/** Events of a client's body. `whole`, `refused` and `gone` end it; call `stop` after the first of them. */
interface BodyEvents extends FormEvents {
  piece?(): void;
  /** The client went away, also after its body was whole. */
  gone(): void;
}

/**
 * No faster than the image's sink takes it. @param boundary of `formBoundary` @param pace longest wait for bytes, and average rate over it;
 * time under back pressure does not count
 */
export function readUpload(
  req: IncomingMessage,
  boundary: string,
  { idleTimeoutMs, minBytesPerSecond }: { idleTimeoutMs: number; minBytesPerSecond: number },
  on: BodyEvents,
) {
  let stopped = false;
  let ended = false;
  let blocked = false;
  const form = new ImageForm(boundary, on);
  /** True while the client is expected to send; false under back pressure and after the end. */
  const waitsForClient = (): boolean => !blocked && !ended;
  const idle = setTimeout(() => {
    if (waitsForClient()) on.refused(refuse("request_timeout"));
  }, idleTimeoutMs);
  const pace = requirePace(minBytesPerSecond, idleTimeoutMs, () => {
    if (waitsForClient()) on.refused(refuse("request_timeout", { detail: "the upload is too slow" }));
  });

  const gathered = gatherSmallPieces((bytes) => {
    // The pieces gathered before may have been refused: the rest is drained.
    if (stopped) return;
    blocked = !form.write(bytes);
    if (!blocked) return;
    pace.forgive();
    req.pause();
  });
  const onData = (chunk: Buffer) => {
    idle.refresh();
    on.piece?.();
    pace.received(chunk.length);
    gathered.add(chunk);
  };
  form.onDrain(() => {
    if (stopped) return;
    blocked = false;
    idle.refresh();
    req.resume();
  });
  const onEnd = () => {
    ended = true;
    gathered.flush();
    if (!stopped) form.end();
  };
  // No listener for errors: a request without one does not emit the error of an abort, and its socket closes.
  req.on("data", onData).on("end", onEnd);
  req.socket.on("close", on.gone);

  /** Detaches from the request and leaves it paused, so that the rest of its body can be drained. */
  const stop = (): void => {
    if (stopped) return;
    stopped = true;
    clearTimeout(idle);
    pace.stop();
    gathered.drop();
    req.off("data", onData).off("end", onEnd);
    req.socket.off("close", on.gone);
    if (!ended) req.pause();
    form.stop();
  };
  return { waitsForClient, stop };
}

/** A smaller piece waits for the others of its tick. */
const SMALL_BYTES = 1024;
const GATHERED_BYTES_MAX = 16_384;

/** Once per tick: Node reads up to 10,000 chunks of a byte, and each would be a write with three buffers upstream. */
function gatherSmallPieces(write: (bytes: Buffer) => void) {
  let space: Buffer | undefined;
  let length = 0;
  let atTickEnd: NodeJS.Immediate | undefined;

  function flush(): void {
    clearImmediate(atTickEnd);
    atTickEnd = undefined;
    if (!space || length === 0) return;
    const bytes = Buffer.from(space.subarray(0, length));
    length = 0;
    write(bytes);
  }

  return {
    add(piece: Buffer): void {
      const isSmall = piece.length < SMALL_BYTES;
      if (!isSmall || length + piece.length > GATHERED_BYTES_MAX) flush();
      if (!isSmall) {
        write(piece);
        return;
      }
      space ??= Buffer.allocUnsafeSlow(GATHERED_BYTES_MAX);
      space.set(piece, length);
      length += piece.length;
      atTickEnd ??= setImmediate(flush);
    },
    flush,
    drop(): void {
      length = 0;
      clearImmediate(atTickEnd);
    },
  };
}

/** Without periods under back pressure. @param tooSlow called at the end of each period below the minimum */
function requirePace(minBytesPerSecond: number, periodMs: number, tooSlow: () => void) {
  const periodBytesMin = (minBytesPerSecond * periodMs) / 1000;
  let periodBytes = 0;
  let forgiven = false;
  const timer = setInterval(() => {
    const isSlow = periodBytes < periodBytesMin && !forgiven;
    periodBytes = 0;
    forgiven = false;
    if (isSlow) tooSlow();
  }, periodMs);
  return {
    received(bytes: number): void {
      periodBytes += bytes;
    },
    forgive(): void {
      forgiven = true;
    },
    stop: () => clearInterval(timer),
  };
}
