import { tmpdir } from "node:os";
import { join } from "node:path";

/** Where node keeps compiled code: a run of the tests starts some two hundred processes that load the same files. */
export const COMPILE_CACHE = join(tmpdir(), "tollgate-compile-cache");

/** All that a process under test gets of this process's environment. */
export function childEnv(): { PATH: string; NODE_COMPILE_CACHE: string } {
  const { PATH = "" } = process.env;
  return { PATH, NODE_COMPILE_CACHE: COMPILE_CACHE };
}
