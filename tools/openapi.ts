import { openApiText } from "../src/api/document.ts";

export const openApi = { file: "docs/openapi.json", text: openApiText };
