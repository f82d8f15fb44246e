// SPDX-License-Identifier: MIT
// What happened to a call, in the order it happened: attempts with what they prove, rounds with what the receipt said,
// what a person did, and the ending. The gateway's own sentences are the evidence; here they get their place in time.
import { html } from '../base.js';
import { span } from '../format.js';
import { evidence } from '../evidence.js';
import { t } from '../words.js';
import { Icon } from './icon.js';
import { Time } from './parts.js';
import { Badge, heard, look, reason, say } from './state.js';

const DONE = { ask: 'ask', fence: 'fence', send: 'send', reversal: 'undo' };
const DECIDED = ['manual', 'settle', 'close', 'reverse'];
const AUDIT = { resolve: 'person', run: 'play', erase: 'erase' };

const seconds = (from, to) => (new Date(to) - new Date(from)) / 1000;

export function ofAttempts(attempts) {
  return attempts.map((a) => ({
    at: a.started_at, icon: 'send', tone: look(a.outcome ?? 'none').tone,
    title: t('event.attempt', { n: a.n }),
    badge: a.ended_at ? html`<${Badge} kind="outcome" word=${a.outcome} />` : html`<${Badge} kind="outcome" word="none" />`,
    said: evidence(a.evidence),
    more: a.ended_at && t('event.took', { time: span(seconds(a.started_at, a.ended_at)) }),
  }));
}

export function ofHistory(history) {
  return history.map((h) => {
    const done = Object.keys(DONE).filter((word) => (h.action ?? '').includes(word));
    const answer = heard(h.answer);
    return {
      at: h.at, icon: DONE[done[0]] ?? 'info', tone: look(answer).tone,
      title: `${t('event.round', { round: h.round })}: ${done.map((word) => t(`did.${word}`)).join(', ') || h.action || '–'}`,
      badge: answer && html`<${Badge} word=${answer} />`,
      said: evidence(h.detail),
      quote: h.difference,
      more: DECIDED.includes(h.decision) && t(`decided.${h.decision}`),
    };
  });
}

export function ofAudit(rows) {
  return rows.map((row) => ({
    at: row.at, icon: AUDIT[row.action] ?? 'person', tone: 'person',
    title: t(`audit.${row.action}.by`, { who: row.operator }),
    badge: row.outcome && html`<${Badge} word=${row.outcome} />`,
    quote: row.evidence,
  }));
}

export function ofEnding(call) {
  const events = [{ at: call.created_at, icon: 'received', tone: 'calm', title: t('event.recorded'),
    said: t(call.call_id_source === 'gateway' ? 'event.recorded.ours' : 'event.recorded.theirs') }];
  if (call.ended_at)
    events.push({ at: call.ended_at, icon: look(call.state).icon, tone: look(call.state).tone, last: true,
      title: t('event.ended', { state: say('state', call.state) }),
      said: call.reason ? reason(call) : t(`meaning.${call.state}`) });
  return events;
}

/** Events in order; of two at one moment the ending comes last. */
export function inOrder(events) {
  return events.filter((event) => event.at).map((event, i) => ({ ...event, i }))
    .sort((a, b) => new Date(a.at) - new Date(b.at) || (a.last ?? false) - (b.last ?? false) || a.i - b.i);
}

export function Timeline({ events }) {
  return html`<ol class="timeline">${events.map((event) => html`<li><span class="dot ${event.tone}"><${Icon} name=${event.icon} /></span>
    <div><div class="what"><h3>${event.title}</h3>${event.badge}<span class="hint number"><${Time} at=${event.at} fine /></span></div>
      ${event.said && html`<p class="said">${event.said}</p>`}
      ${event.quote && html`<blockquote>${event.quote}</blockquote>`}
      ${event.more && html`<p class="hint">${event.more}</p>`}</div></li>`)}</ol>`;
}
