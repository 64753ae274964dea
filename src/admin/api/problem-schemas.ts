import { Type } from "typebox";
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
            description:
              "A JSON pointer into the body, such as `/limits/rate_limit`; `?` and the name of a query parameter; or the name of a header.",
          }),
          message: text,
        }),
      ),
    ),
  },
  { title: "Problem" },
);
