import { Type } from "typebox";
import { SHADOW_LIMITS } from "../../domain/limits.ts";
import { text } from "./field-schemas.ts";

export const Problem = Type.Object(
  {
    type: text,
    title: text,
    status: Type.Integer(),
    detail: text,
    code: text,
    request_id: text,
    errors: Type.Optional(
      Type.Array(
        Type.Object({
          path: Type.String({
            description: `A JSON pointer into the body, such as \`/limits/${SHADOW_LIMITS[0]}\`; \`?\` and the name of a query parameter; or the name of a header.`,
          }),
          message: text,
        }),
      ),
    ),
  },
  { title: "Problem" },
);
