// SPDX-License-Identifier: MIT
// Times, spans and numbers as people read them, in the page's language.
import { locale, t } from './words.js';

const NONE = '–';

function time(options) {
  return (at) => new Intl.DateTimeFormat(locale(), { hourCycle: 'h23', ...options }).format(at);
}

/** 29 Nov, 17:40:12; with the year when it is another one; `short`: without the day when it is today. */
export function moment(text, fine = false, short = false) {
  const at = new Date(text);
  if (!text || Number.isNaN(at.getTime())) return NONE;
  const day = !(short && at.toDateString() === new Date().toDateString());
  return time({
    year: at.getFullYear() === new Date().getFullYear() ? undefined : 'numeric', month: day ? 'short' : undefined, day: day ? 'numeric' : undefined,
    hour: '2-digit', minute: '2-digit', second: '2-digit', fractionalSecondDigits: fine ? 3 : undefined,
  })(at);
}

/** The same in UTC, as logs have it: 2026-11-29 17:40:12.345 UTC. */
export function utc(text) {
  const at = new Date(text);
  return Number.isNaN(at.getTime()) ? '' : at.toISOString().replace('T', ' ').replace('Z', ' UTC');
}

export function clock(seconds) {
  return time({ hour: '2-digit', minute: '2-digit' })(new Date(seconds * 1000));
}

export function clockFine(seconds) {
  return time({ hour: '2-digit', minute: '2-digit', second: '2-digit' })(new Date(seconds * 1000));
}

const UNITS = [['d', 86400], ['h', 3600], ['min', 60], ['s', 1]];

/** A span in its two largest units: "2 h 5 min". */
export function span(seconds) {
  if (seconds == null || !Number.isFinite(seconds)) return NONE;
  if (seconds < 0) seconds = 0;
  if (seconds < 1) return `${Math.round(seconds * 1000)} ms`;
  if (seconds < 10) return `${Number(seconds.toFixed(1))} ${t('unit.s')}`;
  const first = UNITS.findIndex(([, size]) => seconds >= size);
  const [name, size] = UNITS[first];
  const whole = Math.floor(seconds / size);
  const next = UNITS[first + 1];
  const rest = next ? Math.floor((seconds - whole * size) / next[1]) : 0;
  return `${whole} ${t(`unit.${name}`)}${rest && first < 3 ? ` ${rest} ${t(`unit.${next[0]}`)}` : ''}`;
}

export function since(text, now = Date.now()) {
  return text ? span((now - new Date(text)) / 1000) : NONE;
}

/** A latency: three digits and a unit that fits. */
export function latency(seconds) {
  if (seconds == null || !Number.isFinite(seconds)) return NONE;
  if (seconds === 0) return '0';
  if (seconds < 0.001) return `${Math.round(seconds * 1e6)} µs`;
  if (seconds < 1) return `${Number((seconds * 1000).toPrecision(3))} ms`;
  return `${Number(seconds.toPrecision(3))} ${t('unit.s')}`;
}

export function number(value, digits = 0) {
  if (value == null || !Number.isFinite(value)) return NONE;
  return new Intl.NumberFormat(locale(), { maximumFractionDigits: digits }).format(value);
}

/** A rate: more digits the smaller it is. */
export function rate(value) {
  return number(value, value >= 100 ? 0 : value >= 10 ? 1 : 2);
}

export function percent(part, whole) {
  return whole ? `${number((100 * part) / whole, part / whole < 0.1 ? 1 : 0)} %` : NONE;
}

export function size(bytes) {
  if (bytes == null) return NONE;
  const names = ['B', 'KiB', 'MiB', 'GiB', 'TiB'];
  const step = Math.min(names.length - 1, Math.floor(Math.log2(Math.max(bytes, 1)) / 10));
  return `${number(bytes / 1024 ** step, step ? 1 : 0)} ${names[step]}`;
}
