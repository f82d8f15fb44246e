// SPDX-License-Identifier: MIT
//
// @node-idempotency in front of a service, the way its documentation has it: onRequest() takes the key in Redis or
// gives the stored answer, the request goes on, onResponse() stores the answer before it is passed back.
//
//   node node_idempotency.js PORT CALLEE_PORT REDIS_PORT [PROCESSES]
import cluster from "node:cluster";
import http from "node:http";
import process from "node:process";
import { Idempotency } from "@node-idempotency/core";
import { RedisStorageAdapter } from "@node-idempotency/storage-adapter-redis";

const [port, calleePort, redisPort, processes = 2] = process.argv.slice(2).map(Number);

function read(stream) {
  return new Promise((resolve, reject) => {
    const parts = [];
    stream.on("data", (part) => parts.push(part));
    stream.on("end", () => resolve(Buffer.concat(parts).toString()));
    stream.on("error", reject);
  });
}

const agent = new http.Agent({ keepAlive: true, maxSockets: 512 });

function forward(request, body) {
  return new Promise((resolve, reject) => {
    const { host, connection, "content-length": length, ...headers } = request.headers;
    const upstream = http.request(
      { agent, host: "127.0.0.1", port: calleePort, method: request.method, path: request.url,
        headers: { ...headers, "content-length": Buffer.byteLength(body) } },
      async (answer) => {
        try {
          resolve({ status: answer.statusCode, kind: answer.headers["content-type"] ?? "", body: await read(answer) });
        } catch (error) {
          reject(error);
        }
      });
    upstream.on("error", reject);
    upstream.end(body);
  });
}

async function serve(idempotency, request, response) {
  const body = await read(request);
  if (request.method !== "POST") {
    const answer = await forward(request, body);
    response.writeHead(answer.status, { "content-type": answer.kind });
    return response.end(answer.body);
  }
  const call = { headers: request.headers, path: request.url, method: request.method, body: JSON.parse(body) };
  const stored = await idempotency.onRequest(call);
  if (stored) {
    response.writeHead(stored.additional.status, { "content-type": stored.additional.kind, "idempotent-replayed": "true" });
    return response.end(stored.body);
  }
  const { status, kind, body: text } = await forward(request, body);
  await idempotency.onResponse(call, { body: text, additional: { status, kind } });
  response.writeHead(status, { "content-type": kind });
  response.end(text);
}

if (cluster.isPrimary) {
  for (let n = 0; n < processes; n++) cluster.fork();
  cluster.on("exit", () => process.exit(1));
  process.on("SIGTERM", () => process.exit(0));
} else {
  const storage = new RedisStorageAdapter({ url: `redis://127.0.0.1:${redisPort}` });
  await storage.connect();
  const idempotency = new Idempotency(storage, { enforceIdempotency: true });
  const server = http.createServer((request, response) => {
    serve(idempotency, request, response).catch((error) => {
      response.writeHead(error.code === "REQUEST_IN_PROGRESS" ? 409 : 500, { "content-type": "text/plain" });
      response.end(`${error}\n`);
    });
  });
  server.keepAliveTimeout = 300_000;
  server.listen({ port, host: "127.0.0.1", backlog: 4096 });
}
