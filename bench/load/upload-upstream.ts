// Takes uploads to their last byte and answers as the generator does. Its argument is the port.
import { createServer } from "node:http";

const answer = JSON.stringify({
  code: 200,
  msg: "success",
  data: { url: "https://files.example.com/one.jpg", expires_at: "2036-01-01T00:00:00Z" },
});

createServer((request, response) => {
  request.on("data", () => {});
  request.on("end", () => {
    response.writeHead(200, { "content-type": "application/json", "content-length": answer.length });
    response.end(answer);
  });
}).listen(Number(process.argv[2]), "127.0.0.1");
