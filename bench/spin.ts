// A fixed piece of work, done whenever the parent asks: how long it takes tells whether somebody else uses the core.
const TURNS = 40_000_000;

function spin(): number {
  let x = 1;
  for (let turn = 0; turn < TURNS; turn++) x = (x ^ (x << 13) ^ (x >>> 7)) | 0;
  return x;
}

spin();
process.on("message", () => {
  const startedMs = performance.now();
  const kept = spin();
  process.send?.({ ms: performance.now() - startedMs, kept });
});
process.on("disconnect", () => process.exit());
