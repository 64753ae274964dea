// The library that the gateway's uploads go through, alone.
import { Agent, createServer } from "node:http";
import httpProxy from "http-proxy-3";

const [upstream, port] = process.argv.slice(2);
const proxy = httpProxy.createProxyServer({
  target: upstream,
  agent: new Agent({ keepAlive: true, maxSockets: 256 }),
});
proxy.on("error", (error, _request, response) => {
  if (!response.headersSent) response.writeHead(502);
  response.end(error.message);
});
createServer((request, response) => void proxy.web(request, response)).listen(Number(port), "127.0.0.1");
