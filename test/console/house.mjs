// SPDX-License-Identifier: MIT
// A real gateway in front of the real sample service, with calls of every ending made through it, and a real browser.
// What no page may ever do is watched on every page: break the Content-Security-Policy, ask another host, throw, or run
// what a caller wrote.
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { existsSync } from 'node:fs';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { createServer as createHttp } from 'node:http';
import { createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { createInterface } from 'node:readline';
import { chromium } from 'playwright-core';
import { root } from './root.mjs';

export { root };
export const program = resolve(process.env.SAMEKEY_BIN ?? join(root, 'build/samekey'));
export const TOKEN = 'operator-4b1d5f0c';
export const READ_TOKEN = 'reader-77e0a9d25c31';
export const TRACE = '4bf92f3577b34da6a3ce929d0e0e4736';
export const XSS = "<img/src='x'/onerror='window.hurt=1'>";

/** Polls until a question has an answer, with a bound. */
export async function until(question, what, seconds = 20) {
  const end = Date.now() + seconds * 1000;
  let last;
  while (Date.now() < end) {
    try {
      const answer = await question();
      if (answer) return answer;
    } catch (error) {
      last = error;
    }
    await new Promise((done) => setTimeout(done, 50));
  }
  throw new Error(`not within ${seconds} s: ${what}${last ? ` (${last.message})` : ''}`);
}

async function freePort() {
  const server = createServer().listen(0, '127.0.0.1');
  await once(server, 'listening');
  const { port } = server.address();
  server.close();
  await once(server, 'close');
  return port;
}

const conf = (house) => `
listen = {"127.0.0.1:${house.port}"}
admin = "127.0.0.1:${house.adminPort}"
admin_token_file = "${house.folder}/token"
admin_read_token_file = "${house.folder}/read-token"
store = "sqlite:${house.folder}/receipts.db"
credential = "{header.X-User}"
node = "node07"
${[['orders', '100ms', 1], ['payments', '24h', 5]].map(([name, gap, rounds]) => `
route "${name}" {
  path = {"/${name === 'orders' ? 'orders' : 'orders/{no}/cancel'}"}
  upstream = {"${house.service}"}
  receipt = "http GET /receipts/{call_id}"
  business_ref = "${name === 'orders' ? '{json.order_no}' : '{path.no}'}"
  key_missing = pass
  attempt_timeout = 3s
  deadline = 8s
  retries = 0
  receipt_timeout = 2s
  receipt_queries = 1
  rounds = ${rounds}
  round_gap = ${gap}
  round_gap_max = ${gap}
  swapped_keys = warn
  reversal = "${name === 'orders' ? 'POST /orders/{json.order_no}/cancel' : ''}"
}`).join('')}
route "large" {
  path = {"/large"}
  upstream = {"${house.large}"}
  receipt = none
  key_missing = pass
}
`;

export class House {
  static async open() {
    const house = new House();
    house.folder = await mkdtemp(join(tmpdir(), 'samekey-console-'));
    try {
      await house.begin();
    } catch (error) {
      await house.close();
      throw error;
    }
    return house;
  }

  async begin() {
    if (!existsSync(program)) throw new Error(`${program} is not built`);
    this.orders = spawn('/usr/bin/python3', [join(root, 'examples/orders/orders.py'), '--port', '0', '--no-fence',
      '--db', join(this.folder, 'orders.db')], { stdio: ['ignore', 'pipe', 'ignore'] });
    const [line] = await once(createInterface({ input: this.orders.stdout }), 'line');
    this.service = line.match(/http:\/\/[\d.]+:\d+/)[0];
    // A service whose answers are large, and hurt whoever shows them as anything but text.
    this.other = createHttp((request, response) => {
      request.resume();
      response.writeHead(200, { 'Content-Type': `text/html; note="${XSS}"`, ETag: `"${XSS}"` });
      response.end(`${XSS}<script>window.hurt=1</script>${'n'.repeat(30000)}`);
    }).listen(0, '127.0.0.1');
    await once(this.other, 'listening');
    this.large = `http://127.0.0.1:${this.other.address().port}`;
    await writeFile(join(this.folder, 'token'), TOKEN + '\n', { mode: 0o600 });
    await writeFile(join(this.folder, 'read-token'), READ_TOKEN + '\n', { mode: 0o600 });
    [this.port, this.adminPort] = [await freePort(), await freePort()];
    this.url = `http://127.0.0.1:${this.adminPort}`;
    await writeFile(join(this.folder, 'samekey.conf'), conf(this));
    await this.startGateway();
    this.browser = await chromium.launch({ executablePath: process.env.CHROMIUM ?? '/usr/bin/chromium', args: ['--no-sandbox'] });
  }

  async startGateway() {
    this.log = '';
    this.gateway = spawn(program, ['gateway', '-c', join(this.folder, 'samekey.conf')], { stdio: ['ignore', 'ignore', 'pipe'] });
    this.gateway.stderr.on('data', (text) => { this.log += text; });
    await until(async () => {
      if (this.gateway.exitCode !== null) throw new Error(`the gateway ended with ${this.gateway.exitCode}: ${this.log}`);
      return (await fetch(`${this.url}/readyz`)).ok;
    }, 'the gateway is ready');
  }

  async restart() {
    this.gateway.kill('SIGTERM');
    await once(this.gateway, 'exit');
    await this.startGateway();
  }

  async close() {
    await this.browser?.close();
    for (const child of [this.gateway, this.orders]) {
      if (!child || child.exitCode !== null || child.signalCode !== null) continue;
      child.kill('SIGCONT');
      child.kill('SIGTERM');
      const slow = setTimeout(() => child.kill('SIGKILL'), 15000);
      await once(child, 'exit');
      clearTimeout(slow);
    }
    this.other?.close();
    this.other?.closeAllConnections();
    await rm(this.folder, { recursive: true, force: true });
  }

  // ---- calls through the gateway

  async call(callId, key, order, { fault, trace, user = 'ann', path = '/orders' } = {}) {
    const headers = { 'Content-Type': 'application/json', 'X-Call-Id': callId, 'X-User': user };
    if (key) headers['Idempotency-Key'] = key;
    if (fault) headers['X-Orders-Fault'] = fault;
    if (trace) headers.traceparent = `00-${trace}-00f067aa0ba902b7-01`;
    const answer = await fetch(`http://127.0.0.1:${this.port}${path}`, { method: 'POST', headers, body: JSON.stringify(order) });
    return { status: answer.status, body: await answer.text() };
  }

  switches(what) {
    return fetch(`${this.service}/switches`, { method: 'POST', headers: { 'Content-Type': 'application/json' }, body: JSON.stringify(what) });
  }

  async admin(path, { method = 'GET', token = TOKEN, body } = {}) {
    const answer = await fetch(this.url + path, { method, body: body && JSON.stringify(body),
      headers: { Authorization: `Bearer ${token}`, ...(body ? { 'Content-Type': 'application/json' } : {}) } });
    return { status: answer.status, document: await answer.json() };
  }

  async tasks(status) {
    return (await this.admin(`/v1/compensations?status=${status}&limit=200`)).document.items;
  }

  /** One call of each ending, and tasks in the hands of a person (three of them) and in rounds (one). */
  async live() {
    await this.call('ok-1', 'order-1', { order_no: '1', amount: '10.50' }, { trace: TRACE });
    await this.call('ok-1', 'order-1', { order_no: '1', amount: '10.50' }, { trace: TRACE });
    await this.call('ok-2', 'order-1', { order_no: '1', amount: '10.50' });
    await this.call('rejected-1', 'order-2', { amount: 'much' }, { trace: TRACE });
    await this.call('swap-1', 'order-3', { order_no: '3', amount: '1' }, { fault: 'status=503' });
    await this.call('xss-1', `${XSS}k`, { order_no: `${XSS}o`, amount: '2', note: `${XSS}b` }, { user: `bob${XSS}` });
    await this.call('undone-1', 'undone-key', { order_no: 'u1', amount: '3' });
    await fetch(`http://127.0.0.1:${this.port}/.samekey/receipts/undone-1/cancel`, { method: 'POST', headers: { 'X-User': 'ann' } });
    await until(async () => (await this.tasks('REVERSED')).length > 0, 'the order is undone');
    await this.switches({ receipts: 'down' });
    for (const n of [1, 2, 3])
      await this.call(`lost-${n}`, `lost-key-${n}`, { order_no: `l${n}`, amount: String(n) }, { fault: 'drop-after-effect', trace: n === 1 ? TRACE : undefined });
    await this.call('slow-1', 'slow-key-1', { reason: 'sold out' }, { fault: 'drop-before-effect', path: '/orders/9/cancel' });
    await this.call('slow-2', 'slow-key-2', { reason: 'sold out' }, { fault: 'drop-before-effect', path: '/orders/9/cancel' });
    await this.call('ok-1', 'another-key', { order_no: '1', amount: '10.50' });
    await until(async () => (await this.tasks('MANUAL')).filter((task) => task.call_id.startsWith('lost-')).length === 3, 'three tasks for a person', 40);
  }

  // ---- the browser

  /** A page of its own context. `bad` collects what must never happen; done() fails on it and closes the page. */
  async page({ token = TOKEN, ...options } = {}) {
    const context = await this.browser.newContext({ viewport: { width: 1280, height: 800 }, locale: 'en-GB', ...options });
    const page = await context.newPage();
    const bad = [];
    page.on('pageerror', (error) => bad.push(`exception: ${error.message}`));
    page.on('dialog', (dialog) => { bad.push(`dialog: ${dialog.message()}`); dialog.dismiss(); });
    page.on('console', (message) => {
      const refused = /Failed to load resource: the server responded with a status of (400|401|403|404|409)|net::ERR_CONNECTION/;
      if (message.type() === 'error' && !refused.test(message.text())) bad.push(`console: ${message.text()}`);
    });
    page.on('request', (request) => {
      const { origin } = new URL(request.url());
      if (origin !== this.url) bad.push(`asked ${request.url()}`);
    });
    await page.addInitScript(() => {
      window.broken = [];
      addEventListener('securitypolicyviolation', (event) => window.broken.push(`${event.violatedDirective} ${event.blockedURI}`));
    });
    page.done = async () => {
      bad.push(...(await page.evaluate(() => [...window.broken.map((text) => `policy: ${text}`), ...(window.hurt ? ['a caller’s text ran'] : [])])));
      await context.close();
      if (bad.length) throw new Error(bad.join('\n'));
    };
    await page.goto(this.url);
    if (token) {
      await page.getByLabel('Token', { exact: true }).or(page.getByLabel('令牌', { exact: true })).fill(token);
      await page.keyboard.press('Enter');
      await page.locator('#page-title').waitFor();
    }
    return page;
  }

  /** Goes to an address of the console and waits until nothing is being loaded. */
  async visit(page, hash) {
    await page.goto(`${this.url}/${hash}`);
    await settled(page);
  }
}

export async function settled(page) {
  await page.locator('#page-title').waitFor();
  await page.waitForFunction(() => !document.querySelector('.bones, [aria-busy="true"]'));
}
