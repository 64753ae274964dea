import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { GENERATED } from "./generated.ts";

// `npm run generate`: writes every generated file anew.
for (const { file, text } of GENERATED) {
  writeFileSync(join(import.meta.dirname, "..", file), await text());
  console.log(file);
}
