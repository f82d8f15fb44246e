// SPDX-License-Identifier: MIT
//
// What a good engineer writes by hand in an afternoon: an idempotency middleware on PostgreSQL. One row a key under a
// primary key; INSERT ... ON CONFLICT takes it, the request goes on, an UPDATE stores the answer before it is passed back.
// Each statement is prepared once and commits by itself; a repeat is answered from the row. (It keeps less than a receipt
// does: a process that dies between the two leaves its key taken for ever.)
//
//   node pg_middleware.js PORT CALLEE_PORT DATABASE_URL [PROCESSES] [CONNECTIONS]
import cluster from "node:cluster";
import { createHash } from "node:crypto";
import http from "node:http";
import process from "node:process";
import pg from "pg";

const [port, calleePort, url] = process.argv.slice(2);
const [processes = 2, connections = 32] = process.argv.slice(5).map(Number);

const TABLE = `CREATE TABLE IF NOT EXISTS idempotency (
  key text PRIMARY KEY, fingerprint bytea NOT NULL, done boolean NOT NULL DEFAULT false, status int, kind text, body text,
  created_at timestamptz NOT NULL DEFAULT now()) WITH (fillfactor = 70)`;
const CLAIM = { name: "claim", text: "INSERT INTO idempotency(key, fingerprint) VALUES($1, $2) ON CONFLICT (key) DO NOTHING RETURNING 1" };
const LOOK = { name: "look", text: "SELECT fingerprint, done, status, kind, body FROM idempotency WHERE key = $1" };
const END = { name: "end", text: "UPDATE idempotency SET done = true, status = $2, kind = $3, body = $4 WHERE key = $1" };

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

function give(response, { status, kind, body }, more = {}) {
  response.writeHead(status, { "content-type": kind, ...more });
  response.end(body);
}

async function serve(pool, request, response) {
  const body = await read(request);
  if (request.method !== "POST") return give(response, await forward(request, body));
  const key = request.headers["idempotency-key"];
  if (!key) return give(response, { status: 400, kind: "text/plain", body: "no key\n" });
  const fingerprint = createHash("sha256").update(`${request.method} ${request.url}\n`).update(body).digest();
  const { rowCount } = await pool.query({ ...CLAIM, values: [key, fingerprint] });
  if (rowCount === 0) {
    const { rows: [row] } = await pool.query({ ...LOOK, values: [key] });
    if (!row.fingerprint.equals(fingerprint)) return give(response, { status: 422, kind: "text/plain", body: "another request\n" });
    if (!row.done) return give(response, { status: 409, kind: "text/plain", body: "in progress\n" });
    return give(response, row, { "idempotent-replayed": "true" });
  }
  const answer = await forward(request, body);
  await pool.query({ ...END, values: [key, answer.status, answer.kind, answer.body] });
  give(response, answer);
}

if (cluster.isPrimary) {
  const client = new pg.Client(url);
  await client.connect();
  await client.query(TABLE);
  await client.end();
  for (let n = 0; n < processes; n++) cluster.fork();
  cluster.on("exit", () => process.exit(1));
  process.on("SIGTERM", () => process.exit(0));
} else {
  const pool = new pg.Pool({ connectionString: url, max: connections, idleTimeoutMillis: 0 });
  const server = http.createServer((request, response) => {
    serve(pool, request, response).catch((error) => give(response, { status: 500, kind: "text/plain", body: `${error}\n` }));
  });
  server.keepAliveTimeout = 300_000;
  server.listen({ port: Number(port), host: "127.0.0.1", backlog: 4096 });
}
