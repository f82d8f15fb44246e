// SPDX-License-Identifier: MIT
// The overview's memory: what /v1/overview said over the last quarter of an hour, as rates. A question without an answer,
// and a gateway that was started anew in between, leave a gap: a line across it would claim something nobody saw.
import { api } from './api.js';

export const EVERY_MS = 2000;
export const KEEP_S = 15 * 60;
const STALE_AFTER_MS = 3 * EVERY_MS + 1000;

const OUTCOMES = ['success', 'rejected', 'failed', 'not_executed', 'pending', 'unknown'];

export const samples = []; // { t: seconds, … } or { t } alone: a gap
export const live = { last: null, at: 0, error: null };
const listeners = new Set();

export function onSample(listener) {
  listeners.add(listener);
  return () => listeners.delete(listener);
}

export function isStale(now = Date.now()) {
  return live.at > 0 ? now - live.at > STALE_AFTER_MS : live.error !== null;
}

const sum = (outcomes) => OUTCOMES.reduce((total, name) => total + (outcomes?.[name] ?? 0), 0);

/** What happened between two answers, a second; null when they cannot be compared. */
export function between(before, after) {
  const seconds = before ? (new Date(after.at) - new Date(before.at)) / 1000 : 0;
  if (!before || before.started_at !== after.started_at || before.node !== after.node || seconds <= 0) return null;
  const a = before.totals;
  const b = after.totals;
  const per = (now, then) => Math.max(0, (now ?? 0) - (then ?? 0)) / seconds;
  return {
    calls: per(sum(b.outcomes), sum(a.outcomes)),
    ...Object.fromEntries(OUTCOMES.map((name) => [name, per(b.outcomes[name], a.outcomes[name])])),
    replays: per(b.replays, a.replays),
    joins: per(b.joins, a.joins),
    swapped: per(b.swapped_keys, a.swapped_keys),
    retries: per(b.retries, a.retries),
    routes: Object.fromEntries(after.routes.map((route) => {
      const old = before.routes.find((other) => other.route === route.route);
      return [route.route, per(sum(route.outcomes), sum(old?.outcomes))];
    })),
  };
}

function push(sample) {
  samples.push(sample);
  while (samples.length && sample.t - samples[0].t > KEEP_S) samples.shift();
}

export async function sample() {
  try {
    const answer = await api.overview();
    const rates = between(live.last, answer);
    const t = new Date(answer.at) / 1000;
    const { latency, now } = answer;
    if (rates && live.error === null)
      push({ t, ...rates, requestP50: latency.request.p50_s, requestP99: latency.request.p99_s,
        commitP99: latency.commit.p99_s, upstreamP99: latency.upstream?.p99_s,
        running: now.calls_running, queued: now.calls_queued, storeQueue: now.store_queue });
    else if (live.last) push({ t });
    Object.assign(live, { last: answer, at: Date.now(), error: null, rates });
  } catch (error) {
    if (live.last) push({ t: Date.now() / 1000 });
    live.error = error;
  }
  listeners.forEach((listener) => listener());
}

/** Asks again and again until the returned function is called; more seldom while nobody looks. */
export function run() {
  let timer = null; // null while an answer is waited for
  let over = false;
  const turn = async () => {
    clearTimeout(timer);
    timer = null;
    await sample();
    if (!over) timer = setTimeout(turn, document.hidden ? 5 * EVERY_MS : EVERY_MS);
  };
  const seen = () => {
    if (!document.hidden && timer !== null) turn();
  };
  document.addEventListener('visibilitychange', seen);
  turn();
  return () => {
    over = true;
    clearTimeout(timer);
    document.removeEventListener('visibilitychange', seen);
  };
}
