import {
  type Static,
  type TArray,
  type TInteger,
  type TObject,
  type TProperties,
  type TSchema,
  type TString,
  Type,
} from "typebox";

/** Unknown keys are refused; a missing section has its defaults. */
export function section<const P extends TProperties>(description: string, properties: P): TObject<P> {
  return Type.Object(properties, { description, default: {}, additionalProperties: false });
}

export function integer(initial: number, minimum: number, maximum: number, description: string): TInteger {
  return Type.Integer({ default: initial, minimum, maximum, description });
}

const UNIT_MS = { ms: 1, s: 1000, m: 60_000, h: 3_600_000, d: 86_400_000 } as const;
const DURATION = /^(\d{1,12})(ms|s|m|h|d)$/;

export function durationMs(text: unknown): number | undefined {
  const match = typeof text === "string" ? DURATION.exec(text) : null;
  return match ? Number(match[1]) * UNIT_MS[match[2] as keyof typeof UNIT_MS] : undefined;
}

export function ms(duration: string): number {
  const milliseconds = durationMs(duration);
  if (milliseconds === undefined) throw new RangeError(`not a duration: ${duration}`);
  return milliseconds;
}

const IS_DURATION = "x-duration";

/** Text such as `15s`; the program has it in milliseconds. */
type TDuration = TString & { readonly [IS_DURATION]: true };

export function duration(initial: string, least: string, most: string, description: string): TDuration {
  const type = Type.String({
    default: initial,
    pattern: DURATION.source,
    description: `${description} From ${least} to ${most}.`,
    "x-expects": "a duration with its unit, such as 500ms, 15s, 10m, 2h or 7d",
    [IS_DURATION]: true,
  });
  const [leastMs, mostMs] = [durationMs(least) ?? 0, durationMs(most) ?? 0];
  return Type.Refine(
    type,
    (text) => (durationMs(text) ?? -1) >= leastMs && (durationMs(text) ?? 0) <= mostMs,
    (text) => `must be from ${least} to ${most}, not ${text}`,
  ) as TString as TDuration;
}

type CamelCase<Name extends string> = Name extends `${infer Head}_${infer Tail}`
  ? `${Head}${Capitalize<CamelCase<Tail>>}`
  : Name;

type Durations = TDuration | TArray<TDuration>;

/** A section as the program has it: names in camel case, durations in milliseconds and with `Ms` behind their names. */
type ProgramSection<Properties extends TProperties> = {
  [Name in keyof Properties & string as Properties[Name] extends Durations
    ? `${CamelCase<Name>}Ms`
    : CamelCase<Name>]: Properties[Name] extends TDuration
    ? number
    : Properties[Name] extends TArray<TDuration>
      ? number[]
      : Static<Properties[Name]>;
};

export function toProgram<Properties extends TProperties>(
  { properties }: TObject<Properties>,
  settings: object,
): ProgramSection<Properties> {
  const isDuration = (type: TSchema | undefined): boolean => type !== undefined && IS_DURATION in type;
  const entries = Object.entries(settings).map(([setting, value]) => {
    const name = setting.replaceAll(/_(.)/g, (_, letter: string) => letter.toUpperCase());
    const type: TSchema & { items?: TSchema } = properties[setting]!;
    if (isDuration(type)) return [`${name}Ms`, ms(value)];
    return isDuration(type.items) ? [`${name}Ms`, value.map(ms)] : [name, value];
  });
  return Object.fromEntries(entries);
}

/** The rule's message never repeats the value, which may be a secret. */
export function text(
  initial: string,
  rule: (value: string) => string | undefined,
  description: string,
): TString {
  return ruled(Type.String({ default: initial, description }), rule);
}

export function ruled(type: TString, rule: (value: string) => string | undefined): TString {
  return Type.Refine(
    type,
    (value) => rule(value) === undefined,
    (value) => rule(value) ?? "",
  );
}
