// SPDX-License-Identifier: MIT
// Settling many tasks after an outage. First what would happen, then exactly that or nothing: the second question carries
// the fingerprint of the set that was shown.
import { html, useState } from '../base.js';
import { api } from '../api.js';
import { link } from '../router.js';
import { number } from '../format.js';
import { t } from '../words.js';
import { Acts, OutcomeField, TextField, ToWrite, useOperator } from '../parts/act.js';
import { Dialog, Failure, Notice } from '../parts/parts.js';
import { say } from '../parts/state.js';

const iso = (local) => (local ? new Date(local).toISOString() : undefined);

function Choose({ form, set, routes, tried }) {
  const needed = (text) => (tried && !text.trim() ? t('needed') : '');
  return html`<p class="muted">${t('bulk.lead')}</p>
    <div class="choices">
      <div class="field"><label for="b-status">${t('col.status')}</label><select id="b-status" value=${form.status} onChange=${(e) => set({ status: e.target.value })}>
        ${['MANUAL', 'PENDING'].map((status) => html`<option value=${status}>${say('status', status)}</option>`)}</select></div>
      <div class="field"><label for="b-route">${t('col.route')}</label><select id="b-route" value=${form.route} onChange=${(e) => set({ route: e.target.value })}>
        <option value="">${t('filter.any')}</option>${routes.map((route) => html`<option value=${route}>${route}</option>`)}</select></div>
      ${['since', 'until'].map((name) => html`<div class="field"><label for=${`b-${name}`}>${t(`bulk.${name}`)}</label>
        <input id=${`b-${name}`} type="datetime-local" value=${form[name]} onChange=${(e) => set({ [name]: e.target.value })} /></div>`)}
    </div>
    <${OutcomeField} value=${form.outcome} onChange=${(outcome) => set({ outcome })} wrong=${tried && !form.outcome ? t('needed') : ''} />
    <${TextField} label=${t('evidence')} hint=${t('bulk.evidence.hint')} value=${form.evidence} onInput=${(evidence) => set({ evidence })} wrong=${needed(form.evidence)} rows=${3} maxlength="4000" />
    <${TextField} label=${t('operator')} hint=${t('operator.hint')} value=${form.operator} onInput=${(operator) => set({ operator })} wrong=${needed(form.operator)} maxlength="128" autocomplete="name" />`;
}

function Shown({ trial, form }) {
  if (!trial.count) return html`<${Notice} icon="info" role="status">${t('bulk.none')}<//>`;
  return html`<${ToWrite} lines=${[
      ['tasks', t('bulk.will', { n: number(trial.count), outcome: say('state', form.outcome) })],
      ['closed', t(`resolve.${form.outcome}.means`)], ['ask', html`${t('evidence')}: <q>${form.evidence.trim()}</q>`],
      ['audit', t('bulk.audit', { n: number(trial.count), who: form.operator.trim() })]]} />
    <div><p class="hint">${t(trial.items.length < trial.count ? 'bulk.first' : 'bulk.these', { n: trial.items.length })}</p>
      <ul class="links to-write">${trial.items.map((task) => html`<li><a class="mono" href=${link(['tasks', task.id])} target="_blank" rel="noopener">${task.call_id}</a></li>`)}</ul></div>`;
}

export function Bulk({ routes, route, onClose, onDone }) {
  const [operator, keepOperator] = useOperator();
  const [form, setForm] = useState({ status: 'MANUAL', route, since: '', until: '', outcome: '', evidence: '', operator });
  const [trial, setTrial] = useState(null);
  const [state, setState] = useState({ tried: false, busy: false, failure: null });
  const set = (change) => setForm({ ...form, ...change });
  const ask = async (more) => {
    setState({ tried: true, busy: true, failure: null });
    try {
      const filter = { status: form.status, route: form.route || undefined, since: iso(form.since), until: iso(form.until) };
      const answer = await api.resolveMany({ filter, outcome: form.outcome, evidence: form.evidence.trim(), operator: form.operator.trim(), ...more });
      setState({ tried: true, busy: false, failure: null });
      return answer;
    } catch (failure) {
      setState({ tried: true, busy: false, failure });
      if (failure.slug === 'set-changed') setTrial(null);
      return null;
    }
  };
  const look = async () => {
    setState({ ...state, tried: true });
    if (!form.outcome || !form.evidence.trim() || !form.operator.trim()) return;
    keepOperator(form.operator.trim());
    setTrial(await ask({ dry_run: true }));
  };
  const write = async () => {
    const done = await ask({ dry_run: false, set: trial.set });
    if (done) onDone(t('bulk.done', { n: number(done.resolved), skipped: number(done.skipped + (done.failed ?? 0)) }));
  };
  const foot = trial?.count
    ? html`<${Acts} act=${t('bulk.write', { n: number(trial.count) })} danger busy=${state.busy} onAct=${write} onClose=${() => setTrial(null)} />`
    : html`<${Acts} act=${t('bulk.look')} busy=${state.busy} onAct=${trial ? () => setTrial(null) : look} onClose=${onClose} />`;
  return html`<${Dialog} title=${t(trial?.count ? 'bulk.confirm' : 'bulk.title')} onClose=${onClose} foot=${foot}>
    ${trial?.count ? html`<${Shown} trial=${trial} form=${form} />`
      : html`<${Choose} form=${form} set=${(change) => { setTrial(null); set(change); }} routes=${routes} tried=${state.tried} />
        ${trial && html`<${Shown} trial=${trial} form=${form} />`}`}
    ${state.failure && html`<${Failure} error=${state.failure} />`}<//>`;
}
