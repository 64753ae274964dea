// files.ts makes it: texts and names of src/domain/limits.ts.
import type * as domain from "../../../domain/limits.ts";

type Shown<Limit> = Pick<Limit, "name" | "unit" | "short" | "title" | "refusal" | ("used" & keyof Limit)>;

export const TIER_LIMITS: readonly Shown<(typeof domain.TIER_LIMITS)[number]>[];
export const CAPS: readonly Shown<(typeof domain.CAPS)[number]>[];
