// The least that a proxy on Node can do: node:http in front, undici's `dispatch` behind, nothing in between.
import { createServer } from "node:http";
import { Pool } from "undici";

const [upstream, port] = process.argv.slice(2);
const pool = new Pool(upstream, { connections: 256 });

createServer((req, res) => {
  const body = [];
  req.on("data", (chunk) => body.push(chunk));
  req.on("end", () => {
    const { authorization, "content-type": type = "application/json" } = req.headers;
    const headers = { "content-type": type, ...(authorization && { authorization }) };
    const chunks = [];
    pool.dispatch(
      { path: req.url, method: req.method, headers, body: body.length > 0 ? Buffer.concat(body) : null },
      {
        onRequestStart() {},
        onResponseStart(_controller, status, answered) {
          res.writeHead(status, {
            "content-type": answered["content-type"],
            "content-length": answered["content-length"],
          });
        },
        onResponseData: (_controller, chunk) => void chunks.push(chunk),
        onResponseEnd: () => res.end(chunks.length === 1 ? chunks[0] : Buffer.concat(chunks)),
        onResponseError(_controller, error) {
          if (!res.headersSent) res.writeHead(502);
          res.end(error.message);
        },
      },
    );
  });
}).listen(Number(port), "127.0.0.1");
