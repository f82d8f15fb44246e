// SPDX-License-Identifier: MIT
// How each word of the gateway's closed vocabularies looks: its tone, its icon, and its text. Never by colour alone.
import { html } from '../base.js';
import { has, t } from '../words.js';
import { Icon } from './icon.js';

const looks = {
  // states of a call
  SUCCESS: ['good', 'done'], FAILED: ['bad', 'failed'], UNKNOWN: ['doubt', 'unknown'], PROCESSING: ['busy', 'running'],
  RECEIVED: ['busy', 'received'], NOT_RECEIVED: ['calm', 'absent'], SILENT: ['doubt', 'plug'],
  // statuses of a task
  PENDING: ['busy', 'waiting'], RUNNING: ['busy', 'running'], RESOLVED: ['good', 'done'], REVERSED: ['calm', 'undo'],
  MANUAL: ['person', 'person'], CLOSED: ['calm', 'closed'],
  // outcomes of an attempt
  success: ['good', 'done'], rejected: ['bad', 'failed'], failed: ['bad', 'failed'], not_executed: ['calm', 'absent'],
  pending: ['busy', 'waiting'], unknown: ['doubt', 'unknown'], none: ['busy', 'running'],
  // breakers
  closed: ['good', 'done'], open: ['bad', 'warn'], partly: ['doubt', 'warn'],
};

export function look(word) {
  const [tone, icon] = looks[word] ?? ['calm', 'info'];
  return { tone, icon };
}

/** The text of a word in this language, or the word itself when this page does not know it. */
export function say(kind, word) {
  const key = `${kind}.${word}`;
  return has(key) ? t(key) : String(word ?? '–').replaceAll('_', ' ');
}

const answers = { not_received: 'NOT_RECEIVED', running: 'PROCESSING', success: 'SUCCESS', failed: 'FAILED', failed_open: 'FAILED',
  unknown: 'UNKNOWN', query_failed: 'SILENT', none: '' };

/** What a round heard, as a state; SILENT where the question had no believable answer; empty where none was asked. */
export function heard(answer) {
  return answers[answer] ?? answer ?? '';
}

/** Why a call is in its state. The gateway says it in English; the Chinese table says it again. */
export function reason(call) {
  const key = `reason.${call.reason}`;
  return has(key) ? t(key) : call.reason_sentence ?? String(call.reason).replaceAll('_', ' ');
}

export function Badge({ kind = 'state', word, large }) {
  const { tone, icon } = look(word);
  return html`<span class="badge ${tone} ${large ? 'large' : ''}"><${Icon} name=${icon} />${say(kind, word)}</span>`;
}
