import { openApiText } from "../src/domain/openapi/document.ts";

export const openApi = { file: "docs/openapi.json", text: openApiText };
