import fc from "fast-check";
import { expect, test } from "vitest";
import { TASK_ID } from "../../../src/domain/answers.ts";
import { shownTaskId, upstreamTaskId } from "../../../src/upstream/answer.ts";

test.each(["task-1", "a.b~c_D", "x".repeat(200), "...", "~e"])("%s goes on as it is", (id) => {
  expect(shownTaskId(id)).toBe(id);
  expect(upstreamTaskId(id)).toBe(id);
});

test.each(["models/abc/1", "a b", ".", "..", "täsk", "~e~", "~e~dGFzay0x", `${"x".repeat(140)}/`])(
  "%s is encoded for paths, and decoded for polls",
  (id) => {
    const shown = shownTaskId(id)!;
    expect(shown).not.toBe(id);
    expect(shown).toMatch(TASK_ID);
    expect(upstreamTaskId(shown)).toBe(id);
  },
);

test.each(["", "/".repeat(10_000), "x".repeat(201), "x/".repeat(100), "\ud800"])(
  "an id that cannot be had: %#",
  (id) => {
    expect(shownTaskId(id)).toBeUndefined();
  },
);

// Guarantee: two tasks of the upstream never become one.
test("any two ids stay two, and each is found again", () => {
  const id = fc.oneof(
    fc.string({ maxLength: 60, unit: "binary" }),
    fc.string({ maxLength: 20 }).map((text) => `~e~${text}`),
  );
  fc.assert(
    fc.property(id, id, (a, b) => {
      const [one, other] = [shownTaskId(a), shownTaskId(b)];
      if (one !== undefined) expect(upstreamTaskId(one)).toBe(a);
      if (one !== undefined && a !== b) expect(other).not.toBe(one);
    }),
  );
});

test.each(["~e~", "~e~!", "~e~dGFzay0x", "~e~dGFzay0"])(
  "%s that is no encoding of ours is left as it is",
  (shown) => {
    expect(upstreamTaskId(shown)).toBe(shown);
  },
);
