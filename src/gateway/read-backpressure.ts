import type { Socket } from "node:net";

/**
 * Stops reading from a client's connection. Node's server resumes a connection whenever it expects something on it: after
 * each request and while it reads a body. A `resume` during the pause is undone, and repeated when the pause ends.
 * @returns ends the pause
 */
export function pauseReading(socket: Socket): () => void {
  let flows = !socket.isPaused();
  let resumed = false;
  const onResume = (): void => {
    flows = true;
    if (!socket.isPaused()) socket.pause();
    // The event belongs to a `resume` from before the pause. Node reads again although the socket counts as paused, and `pause`
    // has an effect on a flowing socket only, so it is paused at the next `resume`. Once only: by then Node may have paused it
    // itself because the client does not take its responses.
    else if (!resumed) {
      resumed = true;
      socket.resume();
      return;
    }
    resumed = false;
  };
  socket.on("resume", onResume);
  socket.pause();
  return () => {
    socket.off("resume", onResume);
    // A socket that Node paused itself, because nobody reads its body, stays paused: otherwise each pause would allow one more
    // read.
    if (flows) socket.resume();
  };
}
