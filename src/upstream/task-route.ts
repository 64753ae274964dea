import { hash } from "node:crypto";
import { API_PREFIX, GENERATION_ENDPOINTS, type GenerationEndpoint } from "../domain/endpoints.ts";
import { type AdapterChoice, builtInChoices, ENVELOPE_CHOICE } from "./adapter-choice.ts";

/** Identifies address, credential and adapter without a secret. The adapter `envelope` has no name and no endpoint in it. */
const TAG = /^([0-9a-f]{12}):([0-9a-f]{12}|-):(https?:\/\/[^#]+)(?:#([a-z][a-z0-9-]{0,31})(?:\/.+)?)?$/;
const ADAPTER_AT = "#";
const NO_CREDENTIAL = "-";

export interface RouteSettings {
  /** Origin and optional base path, no trailing slash, as all addresses here. */
  readonly url: string;
  readonly apiKey: string | undefined;
  /** The upstream before this one, if its address or its credential was different. */
  readonly previousUrl: string | undefined;
  readonly previousApiKey: string | undefined;
  /** Former addresses of the present upstream. */
  readonly replaces: readonly string[];
  readonly dialect?: AdapterChoice;
  /** The adapter before this one, if it is a module of the operator's. */
  readonly previousDialect?: AdapterChoice | undefined;
}

/** Where a task is polled. `unroutable`: nowhere, since its address, the credential for it or its adapter is not known. */
export type TaskRoute =
  | { to: "present" }
  /** `dialect`: if it is not the present one. */
  | { to: "other"; url: string; apiKey: string | undefined; dialect?: AdapterChoice }
  | { to: "unroutable"; origin: string; lacks: "address" | "credential" }
  | { to: "unroutable"; origin: string; lacks: "adapter"; adapter: string };

const short = (text: string): string => hash("sha256", text).slice(0, 12);
/** One text for every spelling of an address: lower-case host, no default port, no trailing slash. */
function canonical(url: string): string {
  const { origin, pathname } = new URL(url);
  return origin + pathname.replace(/\/$/, "");
}
const addressId = (url: string): string => short(canonical(url));
const credentialId = (url: string, apiKey: string | undefined): string =>
  apiKey === undefined ? NO_CREDENTIAL : short(`${canonical(url)}\0${apiKey}`);

/** Digests of address and credential, the address without its path, which may be a secret, and the adapter. */
export function upstreamTag(
  url: string,
  apiKey: string | undefined,
  adapter: string = ENVELOPE_CHOICE.name,
): string {
  const tag = `${addressId(url)}:${credentialId(url, apiKey)}:${new URL(url).origin}`;
  return adapter === ENVELOPE_CHOICE.name ? tag : `${tag}${ADAPTER_AT}${adapter}`;
}

/** The tag that is stored with a task: of its upstream, and the endpoint, which its adapter may need. */
export const taskTag = (upstream: string, path: string): string =>
  upstream.includes(ADAPTER_AT) ? `${upstream}/${path.replace(API_PREFIX, "")}` : upstream;

export function endpointOf(tag: string | undefined): GenerationEndpoint | undefined {
  const at = tag?.indexOf(ADAPTER_AT) ?? -1;
  if (tag === undefined || at === -1) return undefined;
  const name = tag.slice(tag.indexOf("/", at) + 1);
  return GENERATION_ENDPOINTS.find((endpoint) => endpoint === name);
}

interface Tag {
  addressId: string;
  credentialId: string | undefined;
  origin: string;
  /** Undefined if the tag names no adapter because it is a bare address. */
  adapter: string | undefined;
}

function readTag(text: string): Tag | undefined {
  const [, address, credential, base, adapter = ENVELOPE_CHOICE.name] = TAG.exec(text) ?? [];
  if (address !== undefined && base !== undefined && URL.canParse(base)) {
    return { addressId: address, credentialId: credential, origin: new URL(base).origin, adapter };
  }
  if (!/^https?:\/\//.test(text) || !URL.canParse(text)) return undefined;
  const { origin } = new URL(text);
  return { addressId: addressId(text), credentialId: undefined, origin, adapter: undefined };
}

/**
 * Where a task is polled, by the first rule that matches. No credential is sent to an address that did not have it, unless the
 * settings name both. Decision 0030.
 *
 * 1. A task without a tag: the present upstream.
 * 2. Made with the previous credential: its address, with that credential.
 * 3. Made at the present address, or at one that it replaces: the present upstream, whatever the credential was.
 * 4. Made at the previous address, where a previous credential is set: there, with that one.
 * 5. Made with the present credential, or without any: its address, with what it was made with.
 *
 * At each it is asked for with the adapter that made it.
 * @param used addresses that this process has used: the path of an address is not in the tag
 * @param dialects adapters that this process has used
 */
export function routeOf(
  tagged: string | undefined,
  settings: RouteSettings,
  used: Iterable<string> = [],
  dialects: Iterable<AdapterChoice> = [],
): TaskRoute {
  const tag = tagged === undefined ? undefined : readTag(tagged);
  if (!tag) return { to: "present" };
  const route = addressOf(tag, settings, used);
  const { url, apiKey, dialect: present = ENVELOPE_CHOICE, previousDialect: previous } = settings;
  const { adapter = present.name } = tag;
  if (route.to === "unroutable" || adapter === present.name) return route;
  const known = [...(previous ? [previous] : []), ...dialects, ...builtInChoices()];
  const dialect = known.find(({ name }) => name === adapter);
  if (!dialect) return { to: "unroutable", origin: tag.origin, lacks: "adapter", adapter };
  return { ...(route.to === "other" ? route : { to: "other", url, apiKey }), dialect };
}

function addressOf(tag: Tag, settings: RouteSettings, used: Iterable<string>): TaskRoute {
  const { url, apiKey, previousUrl, previousApiKey, replaces } = settings;
  const isAt = (address: string): boolean => addressId(address) === tag.addressId;
  const known = [url, ...(previousUrl === undefined ? [] : [previousUrl]), ...replaces, ...used, tag.origin];
  const address = known.find(isAt);
  if (address === undefined) return { to: "unroutable", origin: tag.origin, lacks: "address" };
  const isPresent = [url, ...replaces].some(isAt);
  const wasAskedWith = (key: string | undefined): boolean => credentialId(address, key) === tag.credentialId;
  if (previousApiKey !== undefined && wasAskedWith(previousApiKey)) {
    return { to: "other", url: isPresent ? url : address, apiKey: previousApiKey };
  }
  if (isPresent) return { to: "present" };
  if (address === previousUrl && previousApiKey !== undefined) {
    return { to: "other", url: address, apiKey: previousApiKey };
  }
  if (wasAskedWith(apiKey)) return { to: "other", url: address, apiKey };
  if (wasAskedWith(undefined)) return { to: "other", url: address, apiKey: undefined };
  return { to: "unroutable", origin: tag.origin, lacks: "credential" };
}
