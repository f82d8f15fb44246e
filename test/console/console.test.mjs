// SPDX-License-Identifier: MIT
// What a person does with the console, done in Chromium against a running gateway.
import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { House, READ_TOKEN, settled, TOKEN, TRACE, until, XSS } from './house.mjs';

const BYTES_MAX = 60 * 1000;
let house;

before(async () => {
  house = await House.open();
  await house.live();
}, { timeout: 120000 });
after(() => house?.close());

/** A test with a page of its own, which fails on anything that a page must never do. */
function story(name, options, play) {
  test(name, { timeout: 60000 }, async () => {
    const page = await house.page(options);
    try {
      await play(page);
    } catch (error) {
      await page.context().close();
      throw error;
    }
    await page.done();
  });
}

const search = async (page, text) => {
  await page.getByRole('searchbox').fill(text);
  await page.keyboard.press('Enter');
  await page.waitForFunction((wanted) => location.hash.includes(new URLSearchParams({ q: wanted }).toString()), text);
  await settled(page);
};
const result = (page, id) => page.getByRole('table').getByRole('link', { name: id, exact: true }).first();
const say = (page, text) => page.getByText(text, { exact: false }).first().waitFor();

test('the files are small, compressed, named by their content and alone', async () => {
  let total = 0;
  for (const path of ['/', '/console.js', '/console.css', '/icon.svg']) {
    const answer = await fetch(house.url + path);
    assert.equal(answer.status, 200, path);
    assert.equal(answer.headers.get('content-encoding'), 'gzip', path);
    assert.match(answer.headers.get('content-security-policy'), /default-src 'none'.*style-src 'self'/);
    assert.doesNotMatch(answer.headers.get('content-security-policy'), /unsafe/);
    total += Number(answer.headers.get('content-length'));
    const text = await answer.text();
    const linked = [...text.matchAll(/(?:src|href)="([^"]+)"|url\(([^)]+)\)/g)].map((match) => match[1] ?? match[2]);
    if (path === '/') assert.deepEqual(linked.filter((url) => !url.startsWith('/')), []);
    const again = await fetch(house.url + path, { headers: { 'If-None-Match': answer.headers.get('etag') } });
    assert.equal(again.status, 304, path);
  }
  assert.ok(total > 20000 && total < BYTES_MAX, `${total} bytes`);
});

story('a wrong token is told and the right one signs in', { token: null }, async (page) => {
  await page.getByLabel('Token').fill('not-the-token-at-all');
  await page.getByRole('button', { name: 'Sign in' }).click();
  await say(page, 'This is not the token.');
  assert.equal(await page.getByLabel('Token').getAttribute('aria-invalid'), 'true');
  await page.getByLabel('Token').fill(TOKEN);
  await page.keyboard.press('Enter');
  await page.getByRole('heading', { level: 1, name: 'Overview' }).waitFor();
  const cookies = await page.context().cookies();
  assert.equal(cookies.length, 1);
  assert.ok(cookies[0].httpOnly && cookies[0].sameSite === 'Strict');
  assert.doesNotMatch(JSON.stringify(await page.evaluate(() => ({ ...localStorage, ...sessionStorage }))), new RegExp(TOKEN));
  await page.getByRole('button', { name: 'Settings' }).click();
  await page.getByRole('button', { name: 'Sign out' }).click();
  await page.getByLabel('Token').waitFor();
  await page.reload();
  await page.getByLabel('Token').waitFor();
});

story('the overview shows rates, unknown calls and breakers', {}, async (page) => {
  await say(page, 'Live');
  await page.getByRole('link', { name: /Unknown/ }).first().waitFor();
  await page.waitForFunction(() => document.querySelectorAll('figure canvas').length === 4);
  const routes = page.getByRole('table', { name: 'Routes' });
  await routes.getByRole('row', { name: /orders.*Closed/ }).waitFor();
  await until(() => page.evaluate(() => [...document.querySelectorAll('[data-line]')].every((node) => node.textContent !== '–')
    || document.querySelector('[data-line]').textContent !== '–'), 'the plots have points');
  await page.getByRole('link', { name: /Unknown/ }).first().click();
  await page.getByRole('heading', { level: 1, name: 'Calls' }).waitFor();
  assert.match(page.url(), /state=UNKNOWN/);
});

story('a call is found by its id and its timeline tells what is known', {}, async (page) => {
  await search(page, 'lost-1');
  await result(page, 'lost-1').click();
  await page.getByRole('heading', { level: 1, name: 'lost-1' }).waitFor();
  await until(() => page.evaluate(() => document.activeElement.id === 'page-title'), 'the name of the page has the focus');
  assert.match(await page.title(), /lost-1/);
  await say(page, 'Nobody knows yet whether the operation took effect');
  await say(page, 'Do not send it under a new key');
  await say(page, 'Request recorded');
  await say(page, 'Attempt 1');
  await say(page, 'the connection was closed after the whole request was sent with no byte of reply');
  await page.getByRole('link', { name: 'ok-1', exact: true }).waitFor(); // of the same trace
  const time = page.locator('.timeline time').first();
  assert.match(await time.getAttribute('title'), /^\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{3} UTC$/);
});

story('calls are found by key, by trace, by traceparent and by reference', {}, async (page) => {
  await search(page, 'order-1');
  await page.getByRole('heading', { name: 'As key: order-1' }).waitFor();
  await result(page, 'ok-1').waitFor();
  await result(page, 'ok-2').waitFor();
  await search(page, TRACE);
  await page.getByRole('heading', { name: `As trace: ${TRACE}` }).waitFor();
  for (const id of ['ok-1', 'rejected-1', 'lost-1']) await result(page, id).waitFor();
  await search(page, `00-${TRACE}-00f067aa0ba902b7-01`);
  await result(page, 'rejected-1').waitFor();
  await search(page, 'ref:l2');
  await result(page, 'lost-2').waitFor();
  assert.equal(await result(page, 'lost-1').count(), 0);
  await search(page, 'there-is-no-such-thing');
  await say(page, 'Nothing found for “there-is-no-such-thing”');
});

story('filters are in the address, and an address can be sent to somebody', {}, async (page) => {
  await house.visit(page, '#/calls');
  await page.getByLabel('State').selectOption('FAILED');
  await page.waitForURL(/state=FAILED/);
  await settled(page);
  await result(page, 'rejected-1').waitFor();
  assert.equal(await result(page, 'ok-1').count(), 0);
  await page.getByLabel('Time').selectOption('1h');
  await page.waitForURL(/range=1h/);
  await page.reload();
  await settled(page);
  assert.equal(await page.getByLabel('State').inputValue(), 'FAILED');
  await result(page, 'rejected-1').waitFor();
  await page.getByRole('button', { name: 'Clear' }).click();
  await result(page, 'ok-1').waitFor();
});

story('a call that was undone and the call that undid it name each other', {}, async (page) => {
  await house.visit(page, '#/calls/undone-1');
  await say(page, 'undone by it');
  await say(page, 'Its effect was undone');
  await page.locator('.links a').first().click();
  await page.waitForFunction(() => !location.hash.includes('undone-1'));
  await settled(page);
  await say(page, 'this call undoes it');
  await page.getByRole('link', { name: 'undone-1', exact: true }).click();
  await page.getByRole('heading', { level: 1, name: 'undone-1' }).waitFor();
  await house.visit(page, '#/tasks?status=REVERSED');
  await page.getByRole('row', { name: /Reversed/ }).first().waitFor();
});

story('a call that shares a result names the original, and the answer is shown', {}, async (page) => {
  await house.visit(page, '#/calls/ok-2');
  await say(page, 'The operation took effect, once');
  await page.getByRole('link', { name: 'ok-1', exact: true }).click();
  await page.getByRole('heading', { level: 1, name: 'ok-1' }).waitFor();
  await say(page, 'HTTP 201');
  const body = page.getByRole('region', { name: 'Body' });
  await body.waitFor();
  assert.match(await body.textContent(), /^\{\n {2}"/);
  assert.match(await body.textContent(), /10\.50/);
  await house.visit(page, '#/calls/never-sent');
  await say(page, 'This gateway has no such call');
});

story('what a caller writes is text', {}, async (page) => {
  await search(page, `key:${XSS}k`);
  await result(page, 'xss-1').waitFor();
  await say(page, `${XSS}k`);
  await result(page, 'xss-1').click();
  await page.getByRole('heading', { level: 1, name: 'xss-1' }).waitFor();
  await say(page, `${XSS}k`);
  await say(page, `${XSS}o`);
  assert.ok((await page.getByRole('region', { name: 'Body' }).textContent()).includes(XSS));
  assert.equal(await page.locator('img[onerror], img[src="x"]').count(), 0);
  await house.visit(page, `#/calls/${encodeURIComponent(XSS)}`);
  await house.visit(page, `#/calls?q=${encodeURIComponent(XSS)}`);
  await say(page, `Nothing found for “${XSS}”`);
  await house.visit(page, '#/calls/%E0%A4%A');
});

story('a task is settled by hand, with evidence, and the audit keeps it', {}, async (page) => {
  await house.visit(page, '#/tasks?status=MANUAL');
  await result(page, 'lost-1').click();
  await page.getByRole('heading', { level: 1, name: 'lost-1' }).waitFor();
  await say(page, 'All rounds are used up');
  await say(page, 'Round 1: receipt asked');
  await page.getByRole('button', { name: 'Review…' }).click();
  await page.getByText('This is needed.').first().waitFor(); // nothing was chosen, nothing written
  await page.getByLabel('It took effect').check();
  const evidence = `orders has one row for l1; ${XSS}`;
  await page.getByLabel('Evidence').fill(evidence);
  await page.getByLabel('Operator').fill('Mei');
  await page.getByRole('button', { name: 'Review…' }).click();
  const dialog = page.getByRole('dialog', { name: 'This will be written' });
  await dialog.waitFor();
  const words = await dialog.textContent();
  for (const text of ['Success', 'lost-1', evidence, 'Mei', 'final']) assert.ok(words.includes(text), text);
  await page.keyboard.press('Escape');
  await dialog.waitFor({ state: 'detached' });
  assert.equal((await house.tasks('MANUAL')).filter((task) => task.call_id === 'lost-1').length, 1);
  await page.getByRole('button', { name: 'Review…' }).click();
  await dialog.getByRole('button', { name: 'Write it' }).click();
  await say(page, 'Settled: Success.');
  await say(page, 'Mei settled it');
  await page.getByRole('link', { name: /All about this call/ }).click();
  await say(page, 'The operation took effect, once');
  await say(page, evidence);
  await page.getByRole('navigation', { name: 'Places' }).getByRole('link', { name: 'Audit' }).click();
  await page.getByRole('row', { name: /Mei.*Settled.*Success.*lost-1/ }).waitFor();
  await say(page, evidence);
  assert.equal((await house.admin('/v1/calls/lost-1')).document.state, 'SUCCESS');
});

story('many tasks are settled after a look at which they are', {}, async (page) => {
  await house.visit(page, '#/tasks');
  await page.getByRole('button', { name: 'Settle many…' }).click();
  const dialog = page.getByRole('dialog');
  await dialog.getByLabel('Route').selectOption('orders');
  await dialog.getByRole('button', { name: 'Show what would be settled' }).click();
  await dialog.getByText('This is needed.').first().waitFor();
  await dialog.getByLabel('It took effect').check();
  await dialog.getByLabel('Evidence').fill('every one of them is in the orders table');
  await dialog.getByLabel('Operator').fill('Jan');
  const waiting = (await house.tasks('MANUAL')).filter((task) => task.route === 'orders').length;
  assert.ok(waiting >= 2);
  await dialog.getByRole('button', { name: 'Show what would be settled' }).click();
  await dialog.getByText(`${waiting} calls end Success, final`, { exact: false }).waitFor();
  await dialog.getByRole('link', { name: 'lost-2', exact: true }).waitFor();
  assert.equal((await house.tasks('MANUAL')).filter((task) => task.route === 'orders').length, waiting, 'a look changes nothing');
  await dialog.getByRole('button', { name: `Settle ${waiting} tasks` }).click();
  await say(page, `${waiting} settled, 0 left as they were`);
  assert.equal((await house.admin('/v1/calls/lost-3')).document.state, 'SUCCESS');
});

story('a round is run at once', {}, async (page) => {
  await house.visit(page, '#/tasks?status=PENDING');
  await result(page, 'slow-1').click();
  await page.getByRole('button', { name: 'Run a round now' }).click();
  await page.getByRole('dialog').getByLabel('Operator').fill('Mei');
  await page.getByRole('dialog').getByRole('button', { name: 'Run now' }).click();
  await say(page, 'The next round is due now');
  const ran = async () => (await house.admin('/v1/audit?call_id=slow-1')).document.items.some((row) => row.action === 'run');
  await until(ran, 'the audit has it');
  await say(page, 'Round 1: receipt asked'); // without a click
});

story('who swaps keys is shown with a pair', {}, async (page) => {
  await house.visit(page, '#/swapped');
  await say(page, 'The same callId came with another key or body');
  await say(page, 'another-key');
  await page.getByRole('link', { name: 'ok-1', exact: true }).first().click();
  await page.getByRole('heading', { level: 1, name: 'ok-1' }).waitFor();
});

story('a stored answer is erased', {}, async (page) => {
  await house.visit(page, '#/calls/xss-1');
  await page.getByRole('button', { name: 'Erase answer' }).click();
  const dialog = page.getByRole('dialog');
  await dialog.getByLabel('Why').fill('request 4711 of the data subject');
  await dialog.getByLabel('Operator').fill('Mei');
  await dialog.getByRole('button', { name: 'Erase for good' }).click();
  await say(page, 'No stored answer');
  await say(page, 'Mei erased the stored answer');
});

story('a reader sees everything and can change nothing', { token: READ_TOKEN }, async (page) => {
  await page.getByRole('banner').getByText('Read only').waitFor();
  await house.visit(page, '#/tasks');
  assert.equal(await page.getByRole('button', { name: 'Settle many…' }).count(), 0);
  await result(page, 'slow-2').click();
  await say(page, 'a token that may only read');
  assert.equal(await page.getByRole('button', { name: /Review|Run a round/ }).count(), 0);
  await house.visit(page, '#/calls/ok-1');
  assert.equal(await page.getByRole('button', { name: 'Erase answer' }).count(), 0);
  const task = (await house.tasks('PENDING'))[0];
  const forced = await page.evaluate(async (id) => (await fetch(`/v1/compensations/${id}/run`, { method: 'POST',
    headers: { 'Content-Type': 'application/json' }, body: '{"operator":"x"}' })).status, task.id);
  assert.equal(forced, 403);
});

story('a change by cookie without the session’s secret is refused', {}, async (page) => {
  const task = (await house.tasks('PENDING'))[0];
  const forced = await page.evaluate(async (id) => (await fetch(`/v1/compensations/${id}/run`, { method: 'POST',
    headers: { 'Content-Type': 'application/json' }, body: '{"operator":"x"}' })).status, task.id);
  assert.equal(forced, 403);
});

story('everything can be done from the keyboard', { token: null }, async (page) => {
  const press = (key) => page.keyboard.press(key);
  const focused = () => page.evaluate(() => document.activeElement.textContent.trim() || document.activeElement.id);
  const tabTo = async (wanted) => {
    for (let i = 0; i < 60; i++) {
      await press('Tab');
      if ((await focused()).includes(wanted)) return;
    }
    throw new Error(`Tab never reached ${wanted}`);
  };
  await page.getByLabel('Token').waitFor();
  await page.keyboard.type(TOKEN); // the field has the focus
  await press('Enter');
  await page.getByRole('heading', { level: 1, name: 'Overview' }).waitFor();
  await page.evaluate(() => document.activeElement.blur());
  await press('Tab');
  assert.equal(await focused(), 'Skip to the content');
  const ring = await page.evaluate(() => getComputedStyle(document.activeElement).outlineStyle);
  assert.equal(ring, 'solid');
  await press('Enter');
  assert.equal(await page.evaluate(() => document.activeElement.id), 'main');
  await press('/');
  await page.keyboard.type('call:slow-2');
  await press('Enter');
  await result(page, 'slow-2').waitFor();
  await tabTo('slow-2');
  await press('Enter');
  await page.getByRole('heading', { level: 1, name: 'slow-2' }).waitFor();
  await until(() => page.evaluate(() => document.activeElement.id === 'page-title'), 'the name of the page has the focus');
  await tabTo('Open the task');
  await press('Enter');
  await page.getByRole('button', { name: 'Review…' }).waitFor();
  for (let i = 0; i < 30 && !(await page.evaluate(() => document.activeElement.type === 'radio')); i++) await press('Tab');
  await press('ArrowDown'); // the second choice
  await press('Tab');
  await page.keyboard.type('no row for order 9, and the log says that the request was cut');
  await press('Tab');
  await page.keyboard.type('Keiko');
  await press('Tab');
  await press('Enter');
  await page.getByRole('dialog').waitFor();
  for (let i = 0; i < 6; i++) { // the focus stays inside
    await press('Tab');
    const inside = await page.evaluate(() => document.activeElement === document.body || document.querySelector('dialog').contains(document.activeElement));
    assert.ok(inside);
  }
  await tabTo('Write it');
  await press('Enter');
  await say(page, 'Settled: Failed.');
  assert.equal((await house.admin('/v1/calls/slow-2')).document.state, 'FAILED');
});

story('the page says so when the gateway is silent, and goes on when it is back', {}, async (page) => {
  await say(page, 'Live');
  house.gateway.kill('SIGSTOP');
  try {
    await page.getByText('Last heard', { exact: false }).waitFor({ timeout: 30000 });
    await say(page, 'The gateway has not answered for');
  } finally {
    house.gateway.kill('SIGCONT');
  }
  await page.getByText('Live', { exact: true }).waitFor({ timeout: 30000 });
});

story('Chinese by the browser’s wish, English by choice', { locale: 'zh-CN' }, async (page) => {
  await page.getByRole('heading', { level: 1, name: '总览' }).waitFor();
  assert.equal(await page.evaluate(() => document.documentElement.lang), 'zh-CN');
  await house.visit(page, '#/calls/lost-2');
  await say(page, '请求已完整发出');
  await page.getByRole('button', { name: '设置' }).click();
  await page.getByLabel('语言').selectOption('en');
  await say(page, 'What happened');
  await page.reload();
  await say(page, 'What happened');
});

story('light and dark by the system and by choice', { colorScheme: 'dark' }, async (page) => {
  const ground = () => page.evaluate(() => getComputedStyle(document.documentElement).backgroundColor);
  const dark = await ground();
  await page.getByRole('button', { name: 'Settings' }).click();
  await page.getByLabel('Appearance').selectOption('light');
  assert.notEqual(await ground(), dark);
  await page.getByLabel('Appearance').selectOption('');
  assert.equal(await ground(), dark);
});

story('a long list goes on by cursor, and no row comes twice', {}, async (page) => {
  for (let n = 0; n < 60; n += 10)
    await Promise.all(Array.from({ length: 10 }, (_, i) => house.call(`many-${n + i}`, `many-key-${n + i}`, { order_no: `m${n + i}`, amount: '1' })));
  await house.visit(page, '#/calls?range=1h');
  await say(page, '50 calls shown');
  await page.getByRole('button', { name: 'Show more' }).click();
  await page.waitForFunction(() => document.querySelectorAll('tbody tr').length > 60);
  const ids = await page.locator('td.main-cell').allTextContents();
  assert.equal(new Set(ids).size, ids.length);
  assert.ok(ids.includes('many-0') && ids.includes('ok-1'));
});

story('a large answer is text, in its headers too, and shown in part until asked for', {}, async (page) => {
  await house.call('large-1', 'large-key', {}, { path: '/large' });
  await house.visit(page, '#/calls/large-1');
  await say(page, 'The first 8 KiB are shown');
  await page.locator('.head-lines').getByText(XSS).first().waitFor();
  assert.equal(await page.locator('.head-lines img, pre img, pre script').count(), 0);
  await page.getByRole('button', { name: 'Show all' }).click();
  assert.ok((await page.getByRole('region', { name: 'Body' }).textContent()).length > 30000);
});

test('the watch over every page sees what it is there for', { timeout: 60000 }, async () => {
  const page = await house.page();
  await page.evaluate((text) => { document.getElementById('main').innerHTML = text; }, XSS);
  await page.waitForFunction(() => window.broken.length > 0);
  await page.evaluate(() => fetch('http://127.0.0.2:9/').catch(() => {}));
  await assert.rejects(page.done(), (error) => /policy: script-src/.test(error.message) && /policy: connect-src/.test(error.message));
});

// The last one: it ends the gateway.
story('a gateway that was restarted asks for the token again and the page comes back where it was', {}, async (page) => {
  await house.visit(page, '#/calls/ok-1');
  await house.restart();
  await page.getByRole('button', { name: 'Refresh' }).click();
  await page.getByLabel('Token').waitFor({ timeout: 30000 });
  await page.getByLabel('Token').fill(TOKEN);
  await page.keyboard.press('Enter');
  await page.getByRole('heading', { level: 1, name: 'ok-1' }).waitFor();
  await say(page, 'HTTP 201');
});
