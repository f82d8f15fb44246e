// SPDX-License-Identifier: MIT
// Every page at two sizes, light and dark: nothing wider than the screen, no violation that axe knows of, and a picture of
// each in build/console-screenshots (SAMEKEY_SCREENSHOTS) for a person to look at.
import assert from 'node:assert/strict';
import { mkdir, readFile } from 'node:fs/promises';
import { createRequire } from 'node:module';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { House, until } from './house.mjs';
import { root } from './root.mjs';

const folder = process.env.SAMEKEY_SCREENSHOTS ?? join(root, 'build/console-screenshots');
const axe = await readFile(createRequire(import.meta.url).resolve('axe-core/axe.min.js'), 'utf8');
const pages = {
  overview: '#/', calls: '#/calls', found: '#/calls?q=order-1', nothing: '#/calls?q=nothing-of-the-kind', success: '#/calls/ok-1', unknown: '#/calls/lost-1', undone: '#/calls/undone-1',
  tasks: '#/tasks', swapped: '#/swapped', audit: '#/audit', lost: '#/nowhere',
};
let house;

before(async () => {
  house = await House.open();
  await house.live();
  const [first] = (await house.tasks('MANUAL')).filter((task) => task.call_id === 'lost-3');
  const settled = await house.admin(`/v1/compensations/${first.id}/resolve`, { method: 'POST',
    body: { outcome: 'SUCCESS', evidence: 'orders has one row for l3, checked against the bank’s ledger', operator: 'Mei' } });
  assert.equal(settled.status, 200);
  const [open] = (await house.tasks('MANUAL')).filter((task) => task.call_id === 'lost-1');
  pages.task = `#/tasks/${open.id}`;
  await mkdir(folder, { recursive: true });
}, { timeout: 120000 });
after(() => house?.close());

/** Looks at what a page shows now; what is wrong with it goes into `wrong`. */
async function look(page, name, wrong) {
  const size = page.viewportSize(); // the window is made as high as the page, so that its fixed bar is at the end of it
  if (!name.startsWith('dialog'))
    await page.setViewportSize({ width: size.width, height: Math.max(size.height, await page.evaluate(() => document.documentElement.scrollHeight)) });
  await page.screenshot({ path: join(folder, `${name}.png`) });
  await page.setViewportSize(size);
  const wider = await page.evaluate(() => document.documentElement.scrollWidth - document.documentElement.clientWidth);
  if (wider) wrong.push(`${name}: wider than the screen by ${wider} px`);
  // Axe is put in by the browser's own tools, which the page's policy does not bind.
  await page.evaluate(axe);
  const { violations } = await page.evaluate(() => window.axe.run(document, { resultTypes: ['violations'] }));
  for (const { id, help, nodes } of violations)
    wrong.push(`${name}: ${id}: ${help}: ${nodes.slice(0, 3).map((node) => `${node.html} ${node.any[0]?.message ?? ''}`).join('; ')}`);
}

for (const [width, height] of [[1280, 800], [390, 844]]) {
  for (const colorScheme of ['light', 'dark']) {
    test(`every page at ${width} in ${colorScheme}`, { timeout: 180000 }, async () => {
      const wrong = [];
      const options = { viewport: { width, height }, colorScheme, reducedMotion: 'reduce' };
      const door = await house.page({ ...options, token: null });
      await look(door, `sign-in-${width}-${colorScheme}`, wrong);
      await door.done();
      const page = await house.page(options);
      for (const [name, hash] of Object.entries(pages)) {
        await house.visit(page, hash);
        if (name === 'overview') {
          await until(async () => {
            await house.call('ok-1', 'order-1', { order_no: '1', amount: '10.50' });
            return page.evaluate(() => document.querySelectorAll('.space p').length === 0);
          }, 'the plots have begun');
        }
        await look(page, `${name}-${width}-${colorScheme}`, wrong);
      }
      await page.getByRole('button', { name: 'Settings' }).click();
      await look(page, `dialog-settings-${width}-${colorScheme}`, wrong);
      await house.visit(page, pages.task);
      await page.getByLabel('It did not take effect').check();
      await page.getByLabel('Evidence').fill('no row for l1 in orders at 17:40, and the request is not in its log');
      await page.getByLabel('Operator').fill('Mei');
      await page.getByRole('button', { name: 'Review…' }).click();
      await page.getByRole('dialog').waitFor();
      await look(page, `dialog-confirm-${width}-${colorScheme}`, wrong);
      await page.keyboard.press('Escape');
      await house.visit(page, '#/tasks');
      await page.getByRole('button', { name: 'Settle many…' }).click();
      await page.getByRole('dialog').waitFor();
      await look(page, `dialog-many-${width}-${colorScheme}`, wrong);
      await page.done();
      assert.deepEqual(wrong, []);
    });
  }
}

test('every page in Chinese', { timeout: 120000 }, async () => {
  const wrong = [];
  const page = await house.page({ locale: 'zh-CN', reducedMotion: 'reduce' });
  for (const [name, hash] of Object.entries(pages)) {
    await house.visit(page, hash);
    await look(page, `${name}-zh`, wrong);
  }
  await page.done();
  assert.deepEqual(wrong, []);
});
