import { configJsonSchema, priceJsonSchema } from "../src/config/json-schema.ts";

const inJson = (schema: object): string => `${JSON.stringify(schema, undefined, 2)}\n`;

export const configSchema = {
  file: "config/tollgate.schema.json",
  text: () => inJson(configJsonSchema()),
};

export const priceSchema = {
  file: "config/prices.schema.json",
  text: () => inJson(priceJsonSchema()),
};
