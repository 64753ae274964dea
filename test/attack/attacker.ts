// A process of its own, so that its work is none of the gateway's event loop: its argument is a file of JSON (Target). It
// prints one line when the attack begins, and one line of JSON (Sent) when it has ended.
import { existsSync, readFileSync, writeFileSync } from "node:fs";
import { setPriority } from "node:os";
import type { Target } from "./attack.ts";
import { ATTACKS } from "./attacks/index.ts";

/** Attackers have machines of their own: here, everybody else goes before them. */
const NICE = 10;
const AUTOGROUP = "/proc/self/autogroup";

async function main(): Promise<void> {
  setPriority(NICE);
  // Where the kernel groups processes by session, niceness counts within a group only.
  if (existsSync(AUTOGROUP)) writeFileSync(AUTOGROUP, String(NICE));
  const target = JSON.parse(readFileSync(process.argv[2] ?? "", "utf8")) as Target;
  const attack = ATTACKS.find(({ name }) => name === target.attack);
  if (attack === undefined) throw new Error(`there is no attack ${target.attack}`);
  process.stdout.write("began\n");
  const { requests, bytes, connections, answers, checks } = await attack.send(target);
  const line = JSON.stringify({ requests, bytes, connections, answers, checks });
  process.stdout.write(`${line}\n`, () => process.exit());
}

await main();
