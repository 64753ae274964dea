import { openApiText } from "../src/core/openapi/document.ts";

export const openApi = { file: "docs/openapi.json", text: openApiText };
