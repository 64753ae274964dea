import { describe, expect, test } from "vitest";
import { clientAddress } from "../../../src/gateway/address.ts";

const PROXY = "10.0.0.1";

describe("without a trusted proxy", () => {
  const address = clientAddress([]);

  test("only the peer counts, whatever X-Forwarded-For claims", () => {
    expect(address("203.0.113.5", undefined)).toBe("203.0.113.5");
    expect(address("203.0.113.5", "198.51.100.7")).toBe("203.0.113.5");
    expect(address("127.0.0.1", "198.51.100.7, 10.0.0.1")).toBe("127.0.0.1");
  });

  test("an IPv4 peer on an IPv6 socket is that IPv4 address", () => {
    expect(address("::ffff:203.0.113.5", undefined)).toBe("203.0.113.5");
  });

  test.each([
    ["2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"],
    ["2001:db8:1:2::1", "2001:db8:1:2::/64"],
    ["2001:0DB8:0001:0002:ffff:ffff:ffff:ffff", "2001:db8:1:2::/64"],
    ["2001:db8:1:3::1", "2001:db8:1:3::/64"],
    ["2001:db8::1", "2001:db8:0:0::/64"],
    ["2001:db8:1::2:3:4:5", "2001:db8:1:0::/64"],
    ["::1", "0:0:0:0::/64"],
    ["::", "0:0:0:0::/64"],
    ["1::", "1:0:0:0::/64"],
    ["fe80::1%eth0", "fe80:0:0:0::/64"],
    ["64:ff9b::192.0.2.1", "64:ff9b:0:0::/64"],
  ])("the IPv6 peer %s counts by its /64", (peer, block) => {
    expect(address(peer, undefined)).toBe(block);
  });

  test("a peer that is gone already has an address all the same", () => {
    expect(address(undefined, undefined)).toBe("");
  });
});

describe("behind trusted proxies", () => {
  const address = clientAddress([PROXY, "192.168.0.0/16", "fd00::/8"]);

  test.each([
    ["the hop that the proxy saw", PROXY, "203.0.113.5", "203.0.113.5"],
    ["a range is trusted too", "192.168.7.7", "203.0.113.5", "203.0.113.5"],
    ["an IPv6 range is trusted too", "fd00::7", "203.0.113.5", "203.0.113.5"],
    ["a mapped proxy is that proxy", `::ffff:${PROXY}`, "203.0.113.5", "203.0.113.5"],
    [
      "trusted hops are passed over from the right",
      PROXY,
      "203.0.113.5, 192.168.1.1,10.0.0.1",
      "203.0.113.5",
    ],
    [
      "what the client wrote itself, left of its own address, is ignored",
      PROXY,
      "1.1.1.1, 203.0.113.5",
      "203.0.113.5",
    ],
    [
      "a trusted address that the client claims does not lead further",
      PROXY,
      "1.1.1.1, 10.0.0.1, 203.0.113.5",
      "203.0.113.5",
    ],
    ["an IPv6 client counts by its /64", PROXY, "2001:db8:1:2:3::9", "2001:db8:1:2::/64"],
    ["a mapped client is IPv4", PROXY, "::ffff:203.0.113.5", "203.0.113.5"],
    ["nothing but trusted hops: the leftmost", PROXY, "192.168.1.1, 192.168.1.2", "192.168.1.1"],
    ["what is no address ends the search at the last known hop", PROXY, "unknown", PROXY],
    ["an empty hop is no address", PROXY, "203.0.113.5, ", PROXY],
    ["some proxies add the port", PROXY, "203.0.113.5:1234", "203.0.113.5"],
    ["and brackets to IPv6", PROXY, "[2001:db8:1:2:3::4]:1234", "2001:db8:1:2::/64"],
    ["an untrusted peer is the client, whatever it claims", "203.0.113.9", "10.0.0.1", "203.0.113.9"],
    ["just outside the range", "192.169.0.1", "203.0.113.5", "192.169.0.1"],
  ])("%s", (_, peer, forwardedFor, client) => {
    expect(address(peer, forwardedFor)).toBe(client);
  });

  test("without the header, the proxy itself", () => {
    expect(address(PROXY, undefined)).toBe(PROXY);
  });
});
