// SPDX-License-Identifier: MIT
// Orders, each placed once: a service guarded by samekey's functions in its own database.
//
//     node service.mjs PORT postgres://USER@HOST/DATABASE
import { createHash } from 'node:crypto';
import { createServer } from 'node:http';
import pg from 'pg';

const pool = new pg.Pool({ connectionString: process.argv[3] });
pool.on('error', () => {}); // a connection that idled was closed; the next one is new
const refused = { in_progress: [409, 'pending'], mismatch: [422, 'rejected'], fenced: [409, 'rejected'], expired: [409, 'rejected'] };

async function place(callId, key, body) {
  const order = JSON.parse(body);
  const db = await pool.connect();
  try {
    await db.query('BEGIN');
    const { rows: [said] } = await db.query(
      'SELECT verdict, result_status, result_body FROM samekey.begin($1, $2, $3, $4)',
      [callId, key, createHash('sha256').update(body).digest('hex'), 'orders']);
    if (said.verdict === 'run') {
      await db.query('INSERT INTO orders VALUES ($1, $2)', [order.order, order.amount]);
      said.result_status = 201;
      said.result_body = Buffer.from(JSON.stringify({ placed: order.order }));
      await db.query('SELECT samekey.finish($1, $2, $3, $4)', [callId, 'SUCCESS', said.result_status, said.result_body]);
    }
    await db.query('COMMIT');
    db.release();
    return said;
  } catch (error) {
    db.release(true); // closed, and with it whatever was open: a lost COMMIT is for the receipt to tell
    throw error;
  }
}

createServer(async (request, response) => {
  const pieces = [];
  for await (const piece of request) pieces.push(piece);
  try {
    const said = await place(request.headers['x-call-id'], request.headers['idempotency-key'] ?? null, Buffer.concat(pieces));
    const [status, outcome] = refused[said.verdict] ?? [said.result_status ?? 200, 'success'];
    response.writeHead(status, { 'Call-Outcome': outcome });
    response.end(refused[said.verdict] ? JSON.stringify({ refused: said.verdict }) : said.result_body);
  } catch {
    response.writeHead(500).end(); // no word about the effect
  }
}).listen(Number(process.argv[2]), '127.0.0.1');
