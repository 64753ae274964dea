import { Socket } from "node:net";
import { createConfig, lintFromString } from "@redocly/openapi-core";
import { type RulesetDefinition, Spectral } from "@stoplight/spectral-core";
import { oas } from "@stoplight/spectral-rulesets";
import { afterAll, describe, expect, test, vi } from "vitest";
import { openApiText } from "../../../src/api/document.ts";
import { adminOpenApi } from "../../../tools/management-openapi.ts";

// A linter loads much code, and a busy machine takes its time.
vi.setConfig({ testTimeout: 180_000 });

/** Neither linter has a reason to ask the network for anything. */
const connect = vi.spyOn(Socket.prototype, "connect").mockImplementation(() => {
  throw new Error("a linter wants the network");
});
afterAll(() => connect.mockRestore());

/** Who the operator of a gateway is, and under what terms, is not known here. */
const NOT_OURS = ["contact-properties", "license-url"];

type Linter = (text: string) => Promise<string[]>;

const redocly: Linter = async (text) => {
  const config = await createConfig({ extends: ["recommended-strict"] });
  const problems = await lintFromString({ source: text, absoluteRef: "openapi.json", config });
  return problems.map(({ ruleId, message }) => `${ruleId}: ${message}`);
};

const spectral: Linter = async (text) => {
  const linter = new Spectral();
  const rules = Object.fromEntries(NOT_OURS.map((rule) => [rule, "off" as const]));
  linter.setRuleset({ extends: [[oas as RulesetDefinition, "all"]], rules });
  const problems = await linter.run(text);
  return problems.map(({ code, message, path }) => `${code} at ${path.join("/")}: ${message}`);
};

describe.each<[string, Linter]>([
  ["redocly's strict recommendation", redocly],
  ["all of spectral's rules for OpenAPI", spectral],
])("the API description under %s", (_, lint) => {
  test.each([
    ["the public port's", openApiText],
    ["the management API's", adminOpenApi.text],
  ])("%s is clean, and nothing is fetched", async (_, text) => {
    expect(await lint(text())).toEqual([]);
    expect(connect).not.toHaveBeenCalled();
  });

  test("would not be with an operation without a name, or an example that its schema refuses", async () => {
    const document = JSON.parse(openApiText());
    const { post } = document.paths["/api/v1/gen2/text-to-video"];
    // As little as these two need.
    document.paths = { "/api/v1/gen2/text-to-video": { post } };
    document.components.responses = {};
    post.responses = { "200": post.responses["200"] };
    delete post.operationId;
    post.requestBody.content["application/json"].examples.least.value.prompt = 7;
    const problems = (await lint(JSON.stringify(document))).join("\n");
    expect(problems).toMatch(/operation-?operationId/i);
    expect(problems).toMatch(/example[\s\S]*string/i);
  });
});
