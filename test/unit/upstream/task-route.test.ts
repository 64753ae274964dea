import { expect, test } from "vitest";
import { type RouteSettings, routeOf, upstreamTag } from "../../../src/upstream/task-route.ts";

const OLD = "https://old.example.com";
const NEW = "https://new.example.com";
const OLD_PATH = "https://old.example.com/v1/path-secret";

const settings = (over: Partial<RouteSettings> = {}): RouteSettings => ({
  url: NEW,
  apiKey: "key-new",
  previousUrl: undefined,
  previousApiKey: undefined,
  replaces: [],
  ...over,
});
const PREVIOUS = { previousUrl: OLD, previousApiKey: "key-old" };
const present = { to: "present" };
const at = (url: string, apiKey: string | undefined) => ({ to: "other", url, apiKey });
const nowhere = (lacks: "address" | "credential") => ({
  to: "unroutable",
  origin: "https://old.example.com",
  lacks,
});

test.each<[string, string | undefined, Partial<RouteSettings>, object]>([
  ["without a tag", undefined, PREVIOUS, present],
  ["with a tag that means nothing", "nonsense", PREVIOUS, present],
  ["of the present upstream", upstreamTag(NEW, "key-new"), {}, present],
  ["of the present upstream, before its key was rotated", upstreamTag(NEW, "key-0"), {}, present],
  ["of another account there", upstreamTag(NEW, "key-0"), { previousApiKey: "key-0" }, at(NEW, "key-0")],
  ["of an address that is replaced", upstreamTag(OLD, "key-0"), { replaces: [OLD] }, present],
  [
    "of another account at an address that is replaced",
    upstreamTag(OLD, "key-old"),
    { replaces: [OLD], previousApiKey: "key-old" },
    at(NEW, "key-old"),
  ],
  ["of the previous upstream", upstreamTag(OLD, "key-old"), PREVIOUS, at(OLD, "key-old")],
  ["of the previous upstream, with an older key", upstreamTag(OLD, "key-0"), PREVIOUS, at(OLD, "key-old")],
  [
    "of an upstream of the previous key, without its address",
    upstreamTag(OLD, "key-old"),
    { previousApiKey: "key-old" },
    at(OLD, "key-old"),
  ],
  ["made elsewhere with the present key", upstreamTag(OLD, "key-new"), {}, at(OLD, "key-new")],
  ["made elsewhere without a key", upstreamTag(OLD, undefined), {}, at(OLD, undefined)],
  ["made without a key, as always", upstreamTag(OLD, undefined), { apiKey: undefined }, at(OLD, undefined)],
  ["made elsewhere with an unknown key", upstreamTag(OLD, "key-0"), {}, nowhere("credential")],
  [
    "made elsewhere with a key, and now there is none",
    upstreamTag(OLD, "k"),
    { apiKey: undefined },
    nowhere("credential"),
  ],
  ["of an unknown path", upstreamTag(OLD_PATH, "key-new"), {}, nowhere("address")],
  [
    "of a path that is named, with the same key",
    upstreamTag(OLD_PATH, "key-new"),
    { previousUrl: OLD_PATH },
    at(OLD_PATH, "key-new"),
  ],
  ["of another path of the same origin", upstreamTag(OLD_PATH, "key-old"), PREVIOUS, nowhere("address")],
  ["with a bare address, the present one", NEW, {}, present],
  ["with a bare address, the previous one", OLD, PREVIOUS, at(OLD, "key-old")],
  ["with a bare address that nothing names", OLD, {}, nowhere("credential")],
])("a task %s is asked for where the settings allow", (_, tag, over, route) => {
  expect(routeOf(tag, settings(over))).toEqual(route);
});

test("an address with a path is found among those that the process has had", () => {
  expect(routeOf(upstreamTag(OLD_PATH, "key-new"), settings(), [OLD_PATH])).toEqual(at(OLD_PATH, "key-new"));
});

test("a tag is the same however the address is written, and holds neither path nor key", () => {
  const tag = upstreamTag(OLD_PATH, "key-old");
  expect(upstreamTag("https://OLD.example.com:443/v1/path-secret/", "key-old")).toBe(tag);
  expect(tag).not.toMatch(/path-secret|key-old/);
  expect(upstreamTag(OLD_PATH, "another")).not.toBe(tag);
});

// Guarantee: a key is never sent where it was not used before, whatever stands in Redis.
test("without the key, nobody makes a tag that has the key sent to another address", () => {
  const evil = "https://evil.example.com";
  const [address = "", , ...origin] = upstreamTag(evil, "guess").split(":");
  const stolen = upstreamTag(NEW, "key-new").split(":")[1];
  const forged = [address, stolen, ...origin].join(":");
  expect(routeOf(forged, settings(PREVIOUS))).toMatchObject({ to: "unroutable" });
  expect(routeOf(evil, settings(PREVIOUS))).toMatchObject({ to: "unroutable" });
});
