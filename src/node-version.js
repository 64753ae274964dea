// Run before anything else, by whatever Node there is: an older one refuses --disable-sigusr1 with "bad option" alone.
import { readFileSync } from "node:fs";

const { engines } = JSON.parse(readFileSync(new URL("../package.json", import.meta.url), "utf8"));
const wanted = engines.node.replace(">=", "");
const [major, minor] = process.versions.node.split(".").map(Number);
const [wantedMajor, wantedMinor] = wanted.split(".").map(Number);
if (major < wantedMajor || (major === wantedMajor && minor < wantedMinor)) {
  process.stderr.write(
    `Tollgate needs Node ${wanted} or newer, and ${process.execPath} is ${process.versions.node}. ` +
      "Install a newer one, or run `npm ci` without --omit=dev: it brings Node along.\n",
  );
  process.exit(1);
}
