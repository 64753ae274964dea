import type { Socket } from "node:net";

/**
 * Reads no further from a client's connection. Node's server resumes a connection whenever it expects something on it,
 * behind each request and as its body is read; that is undone, and made up for at the end of the hold.
 * @returns ends the hold
 */
export function holdReading(socket: Socket): () => void {
  let flows = !socket.isPaused();
  let resumed = false;
  const onResume = (): void => {
    flows = true;
    if (!socket.isPaused()) socket.pause();
    // This `resume` is that of a call from before the pause. Node reads again since, though the socket counts as paused,
    // and only the pause of a socket that flows is noticed: it is paused at the next `resume`. Once: by then Node may have paused
    // it itself, since answers are not taken.
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
    // One that Node has paused itself, since nobody takes its body, stays so: each hold would bring a read more.
    if (flows) socket.resume();
  };
}
