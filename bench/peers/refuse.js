// The least that a refusal on Node can cost: node:http that answers 429 to everything.
import { createServer } from "node:http";

const [, port] = process.argv.slice(2);
const body = '{"code":2001,"msg":"Rate limit exceeded"}';
createServer((request, response) => {
  request.resume();
  request.on("end", () => {
    response.writeHead(429, { "content-type": "application/json", "content-length": body.length });
    response.end(body);
  });
}).listen(Number(port), "127.0.0.1");
