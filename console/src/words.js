// SPDX-License-Identifier: MIT
// The string tables and who reads them. Both tables have the same keys (a test compares them); a key without a text
// shows itself, which no test lets through.
import en from './words/en.js';
import zh from './words/zh.js';
import { remember, remembered } from './prefs.js';

const tables = { en, zh };
export const languages = [['en', 'English'], ['zh', '中文']];

function preferred() {
  const wanted = [remembered('language'), ...(navigator.languages ?? [navigator.language ?? 'en'])];
  return wanted.map((tag) => String(tag).slice(0, 2).toLowerCase()).find((tag) => tag in tables) ?? 'en';
}

export let language = preferred();

export function setLanguage(tag) {
  language = tag in tables ? tag : 'en';
  remember('language', language);
  document.documentElement.lang = locale();
}

export function locale() {
  return language === 'zh' ? 'zh-CN' : 'en';
}

/** Whether the current table has this key: for words that come from the gateway and may be newer than this page. */
export function has(key) {
  return key in tables[language];
}

/** The text of a key; {name} is filled from values, and a key with _one is used where n is 1. */
export function t(key, values = {}) {
  const table = tables[language];
  const text = (String(values.n) === '1' && table[`${key}_one`]) || table[key] || key;
  return text.replace(/\{(\w+)\}/g, (whole, name) => values[name] ?? whole);
}
