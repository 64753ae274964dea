import { expect, test } from "vitest";
import { GENERATION_ENDPOINTS } from "../../../src/domain/endpoints.ts";
import { ROUTE_TEMPLATES, route } from "../../../src/gateway/request-lifecycle.ts";

test.each(GENERATION_ENDPOINTS)("POST /api/v1/%s is a generation", (endpoint) => {
  expect(route("POST", `/api/v1/${endpoint}`)).toEqual({
    kind: "generate",
    endpoint,
    template: `/api/v1/${endpoint}`,
  });
});

test("upload, credits and tasks", () => {
  expect(route("POST", "/api/v1/upload").kind).toBe("upload");
  expect(route("GET", "/api/v1/credits").kind).toBe("credits");
  expect(route("GET", "/api/v1/tasks/t.1~x_-")).toEqual({
    kind: "task",
    taskId: "t.1~x_-",
    template: "/api/v1/tasks/{taskId}",
  });
});

// Guarantee: a paid task is found by clients that write `~` as `%7E`, as Java's URLEncoder does. RFC 3986 section 6.2.2.2.
test.each(["%7Ee%7EdGFzay8x", "~e~dGFz%61y8x"])("a task id may be percent-encoded: %s", (written) => {
  expect(route("GET", `/api/v1/tasks/${written}`)).toMatchObject({ kind: "task", taskId: "~e~dGFzay8x" });
});

test("a query does not matter", () => {
  expect(route("GET", "/api/v1/credits?x=1").kind).toBe("credits");
  expect(route("GET", "/api/v1/tasks/abc?x=/y")).toMatchObject({ kind: "task", taskId: "abc" });
  expect(route("POST", "/api/v1/gen2/text-to-video?").kind).toBe("generate");
});

test.each([
  ["GET", "/api/v1/gen2/text-to-video", "POST"],
  ["PUT", "/api/v1/upload", "POST"],
  ["POST", "/api/v1/credits", "GET"],
  ["HEAD", "/api/v1/credits", "GET"],
  ["OPTIONS", "/api/v1/credits", "GET"],
  ["TRACE", "/api/v1/credits", "GET"],
  ["get", "/api/v1/credits", "GET"],
  ["DELETE", "/api/v1/tasks/abc", "GET"],
])("%s %s: only %s is allowed", (method, path, allow) => {
  expect(route(method, path)).toMatchObject({ kind: "wrong_method", allow });
});

test.each([
  "/api/v1",
  "/api/v1/",
  "/api/v1/tasks",
  "/api/v1/tasks/",
  "/api/v1/tasks/a/b",
  "/api/v1/credits/",
  "/api/v1//credits",
  "/api/v1/Credits",
  "/api/v1/credit%73",
  "/api/v1/gen3/text-to-video",
  "/api/v1/gen2/text-to-video/",
  "/api/v1/../v1/credits",
  "/api/v1/tasks/..%2f/",
])("%s is an unknown path under /api/v1", (path) => {
  expect(route("GET", path)).toEqual({ kind: "unknown_path", template: "unknown" });
});

test.each([
  "/",
  "/metrics",
  "/livez",
  "/api",
  "/api/v2/credits",
  "/api/v1x",
  "/API/V1/credits",
  "//api/v1/credits",
])("%s is outside", (path) => {
  expect(route("GET", path)).toEqual({ kind: "outside", template: "unknown" });
});

test("the templates are a closed set, whatever the path", () => {
  const templates = [
    "/x",
    "/api/v1/x",
    "/api/v1/tasks/secret",
    "/api/v1/upload",
    "/callbacks/secret",
    "/api/v1/usage",
  ].map((path) => route("GET", path).template);
  for (const template of templates) expect(ROUTE_TEMPLATES).toContain(template);
  expect(ROUTE_TEMPLATES).toHaveLength(13);
});
