import { FILE_BYTES_MAX, HEADERS_BYTES_MAX, JSON_BODY_BYTES_MAX, JSON_DEPTH_MAX } from "../domain/limits.ts";

export const TAGS = [
  { name: "Credits", description: "What is left, and where it went." },
  { name: "Generation", description: "Six ways to ask for a video. Each costs credits and makes a task." },
  { name: "Tasks", description: "What has become of a request." },
  { name: "Upload", description: "Images to make videos of." },
];

const KIB = 1024;

/** The part of the description that holds for all operations, in Markdown. */
export const INTRODUCTION = `
Ask for a video, get a task, poll the task until it has ended. Every answer is JSON in one envelope: \`code\` 200 means
success and comes with \`data\`; any other code is an error and comes with \`error\`.

## Limits

Three limits belong to a key: generation requests in any 60 seconds, generation requests per day (midnight UTC starts
a new one), tasks at the same time. They are looked at in this order, and then the credits. Only the six generation
endpoints count; polls, uploads and credits do not. A request that is refused here consumes nothing at all; one that the
generator refuses has still taken its place in the 60 seconds.

Five headers on every answer say where the key stands: \`X-RateLimit-Limit\`, \`X-RateLimit-Remaining\`,
\`X-RateLimit-Reset\`, \`X-Concurrent-Limit\`, \`X-Concurrent-Active\`. Where no key is known or the store is unavailable they are
zeros, and the reset is now.

## Credits

A generation has a price in whole credits, fixed when it is admitted. The price is held while the generator is asked,
charged once there is a task, and let go where there is none. A task that ends as \`failed\` is refunded, unless the
operator has turned that off. Prices are the operator's; a 402 names that of the request.

## Sending again

Where waiting helps, an error carries \`retryAfter\` in its body and \`Retry-After\` as a header: seconds, the same number.
Where it carries \`x-should-retry: false\`, a program must not send the request again by itself. Send an
\`Idempotency-Key\` with each generation: it is what makes it safe to repeat one after a 502, a 504 or a lost connection.
A repeat gets the first answer, with \`Idempotency-Replayed: true\`, and is charged once.

## Errors

\`code\` says what went wrong; it is mostly the HTTP status, and 2001 to 2007 tell the limits apart. Where several errors
share a code, the headers \`Retry-After\` and \`x-should-retry\` say what may be done; the names beside the codes stand in
the operator's log and documents, not in the answer. Texts are for people and may change. \`details\`, where present,
lists every broken rule with its place in the body.

Where the generator refuses the request itself, its own 4xx status, code and text are passed on: a status that is listed
with a code of the gateway may then come with one of the generator.

## HTTP

HTTP/1.1 or 1.0; at most ${HEADERS_BYTES_MAX / KIB} KiB of request line and headers, ${JSON_BODY_BYTES_MAX / KIB} KiB of JSON,
${FILE_BYTES_MAX / KIB / KIB} MiB of file. Headers and JSON have 15 seconds to arrive, by default; an upload may be slow, but not stand still for
as long. JSON is UTF-8, well-formed and without duplicate names, nested at most ${JSON_DEPTH_MAX} deep, sent as
\`application/json\` and without a \`Content-Encoding\`. Unknown parameters are refused, with a suggestion; \`null\` for
an optional parameter is an absent one. A query is ignored. The key is asked for first, also where the path or the method is wrong. There is no CORS: keys belong on
servers.
`.trim();
