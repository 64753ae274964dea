import { hash } from "node:crypto";

/** Stored with each task to identify the address and the credential of the upstream that made it, without a secret. */
const TAG = /^([0-9a-f]{12}):([0-9a-f]{12}|-):(https?:\/\/.+)$/;
const NO_CREDENTIAL = "-";

/** The settings that decide where tasks are polled. */
export interface RouteSettings {
  /** Origin and optional base path, no trailing slash, as all addresses here. */
  readonly url: string;
  readonly apiKey: string | undefined;
  /** The upstream before this one, if its address or its credential was different. */
  readonly previousUrl: string | undefined;
  readonly previousApiKey: string | undefined;
  /** Former addresses of the present upstream. */
  readonly replaces: readonly string[];
}

/** Where a task is polled. `unroutable`: nowhere, since its address or the credential for it is not known. */
export type TaskRoute =
  | { to: "present" }
  | { to: "other"; url: string; apiKey: string | undefined }
  | { to: "unroutable"; origin: string; lacks: "address" | "credential" };

const short = (text: string): string => hash("sha256", text).slice(0, 12);
/** The same text for every spelling of an address: lower-case host, no default port, no trailing slash. */
function canonical(url: string): string {
  const { origin, pathname } = new URL(url);
  return origin + pathname.replace(/\/$/, "");
}
const addressId = (url: string): string => short(canonical(url));
const credentialId = (url: string, apiKey: string | undefined): string =>
  apiKey === undefined ? NO_CREDENTIAL : short(`${canonical(url)}\0${apiKey}`);

/**
 * The tag that is stored with a task: digests of address and credential, and the address without its path, which may be a
 * secret. Without a path the origin is the whole address.
 */
export function upstreamTag(url: string, apiKey: string | undefined): string {
  return `${addressId(url)}:${credentialId(url, apiKey)}:${new URL(url).origin}`;
}

interface Tag {
  addressId: string;
  /** Undefined if the tag has none. */
  credentialId: string | undefined;
  origin: string;
}

/** Reads a tag. A bare address is accepted as well. */
function readTag(text: string): Tag | undefined {
  const [, address, credential, origin] = TAG.exec(text) ?? [];
  if (address !== undefined && origin !== undefined && URL.canParse(origin)) {
    return { addressId: address, credentialId: credential, origin: new URL(origin).origin };
  }
  if (!/^https?:\/\//.test(text) || !URL.canParse(text)) return undefined;
  return { addressId: addressId(text), credentialId: undefined, origin: new URL(text).origin };
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
 * @param used addresses that this process has used: the path of an address is not in the tag
 */
export function routeOf(
  tagged: string | undefined,
  settings: RouteSettings,
  used: Iterable<string> = [],
): TaskRoute {
  const tag = tagged === undefined ? undefined : readTag(tagged);
  if (!tag) return { to: "present" };
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
