// SPDX-License-Identifier: MIT
// The string tables: no page may show a key instead of a text, in either language.
import assert from 'node:assert/strict';
import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import test from 'node:test';
import en from '../../console/src/words/en.js';
import zh from '../../console/src/words/zh.js';
import { root } from './root.mjs';

const sources = (folder) => readdirSync(folder, { withFileTypes: true }).flatMap((entry) => {
  const path = join(folder, entry.name);
  return entry.isDirectory() ? (entry.name === 'words' ? [] : sources(path)) : path.endsWith('.js') ? [path] : [];
});
const code = sources(join(root, 'console/src')).map((path) => readFileSync(path, 'utf8')).join('\n');
const defined = (name, expression) => [...readFileSync(join(root, 'src/core', name), 'utf8').matchAll(expression)].map((match) => match[1]);
const holes = (text) => [...text.matchAll(/\{(\w+)\}/g)].map((match) => match[1]).sort().join();

test('both tables have the same keys', () => {
  // English says _one where a number is one, which Chinese does not; the gateway itself gives reasons in English.
  const counted = (key) => !key.endsWith('_one');
  const missing = Object.keys(en).filter((key) => counted(key) && !(key in zh));
  const extra = Object.keys(zh).filter((key) => !(key in en) && !key.startsWith('reason.'));
  assert.deepEqual([missing, extra], [[], []]);
});

test('every text that a page asks for is there', () => {
  const asked = [...code.matchAll(/\bt\('([^']+)'/g)].map((match) => match[1]);
  assert.ok(asked.length > 100);
  const counting = ['calls.count', 'tasks.count', 'audit.count'];
  assert.deepEqual([...asked, ...counting].filter((key) => !(key in en) || !(key in zh)), []);
});

test('every word of the closed vocabularies has a text in both', () => {
  const states = defined('state.def', /^STATE\((\w+)/gm);
  const outcomes = defined('outcome.def', /^OUTCOME\(\w+, \d+, "(\w+)"/gm);
  const reasons = defined('reason.def', /^REASON\(\w+, \d+, "([^"]+)"/gm);
  assert.ok(states.length >= 6 && outcomes.length >= 7 && reasons.length >= 20);
  const wanted = [...states.flatMap((word) => [`state.${word}`, `meaning.${word}`]), ...outcomes.map((word) => `outcome.${word}`)];
  const tasks = defined('task.def', /^TASK\((\w+)/gm);
  assert.ok(tasks.length >= 6);
  wanted.push(...tasks.flatMap((word) => [`status.${word}`, `task.meaning.${word}`]));
  assert.deepEqual(wanted.filter((key) => !(key in en) || !(key in zh)), []);
  assert.deepEqual(reasons.filter((word) => !(`reason.${word}` in zh)), []);
});

test('a translation has the holes of its original', () => {
  assert.deepEqual(Object.keys(en).filter((key) => key in zh && holes(en[key]) !== holes(zh[key])), []);
});

test('Chinese texts are Chinese', () => {
  const names = new Set(['col.call', 'call.source', 'title', 'figure.p50', 'breaker.of']);
  assert.deepEqual(Object.entries(zh).filter(([key, text]) => !names.has(key) && !/[\u4e00-\u9fff]/.test(text)).map(([key]) => key), []);
});
