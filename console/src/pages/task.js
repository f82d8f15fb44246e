// SPDX-License-Identifier: MIT
// One task: its rounds and what they saw, and settling it by hand: what happened, the evidence, a name, a confirmation.
import { html, useState } from '../base.js';
import { api, session } from '../api.js';
import { since } from '../format.js';
import { useAgain, useLoad, useNow } from '../load.js';
import { link } from '../router.js';
import { t } from '../words.js';
import { due } from './tasks.js';
import { Acts, OutcomeField, TextField, ToWrite, useOperator } from '../parts/act.js';
import { Icon } from '../parts/icon.js';
import { Bones, Button, Copy, Dialog, Empty, Facts, Failure, Notice, Time } from '../parts/parts.js';
import { Badge, heard, look, say } from '../parts/state.js';
import { inOrder, ofAudit, ofHistory, Timeline } from '../parts/timeline.js';

const OPEN = ['PENDING', 'RUNNING', 'MANUAL'];

function Resolve({ task, onDone }) {
  const [operator, setOperator] = useOperator();
  const [outcome, setOutcome] = useState('');
  const [evidence, setEvidence] = useState('');
  const [tried, setTried] = useState(false);
  const [asking, setAsking] = useState(false);
  const [busy, setBusy] = useState(false);
  const [failure, setFailure] = useState(null);
  const needed = (text) => (tried && !text.trim() ? t('needed') : '');
  const review = (event) => {
    event.preventDefault();
    setTried(true);
    if (outcome && evidence.trim() && operator.trim()) setAsking(true);
    else setTimeout(() => event.target.querySelector('[aria-invalid="true"], input[type=radio]')?.focus());
  };
  const write = async () => {
    setBusy(true);
    try {
      await api.resolve(task.id, { outcome, evidence: evidence.trim(), operator: operator.trim() });
      onDone(t('resolve.done', { outcome: say('state', outcome) }));
    } catch (error) {
      setFailure(error);
      setAsking(false);
    }
    setBusy(false);
  };
  return html`<section class="card"><h2>${t('resolve.title')}</h2><form class="body stack" onSubmit=${review} novalidate>
    <p class="muted">${t('resolve.lead')}</p>
    <${OutcomeField} value=${outcome} onChange=${setOutcome} wrong=${tried && !outcome ? t('needed') : ''} />
    <${TextField} label=${t('evidence')} hint=${t('evidence.hint')} value=${evidence} onInput=${setEvidence} wrong=${needed(evidence)} rows=${4} maxlength="4000" />
    <${TextField} label=${t('operator')} hint=${t('operator.hint')} value=${operator} onInput=${setOperator} wrong=${needed(operator)} maxlength="128" autocomplete="name" />
    ${failure && html`<${Failure} error=${failure} />`}
    <div class="row"><${Button} main type="submit">${t('resolve.review')}<//></div></form>
    ${asking && html`<${Dialog} title=${t('resolve.confirm')} onClose=${() => setAsking(false)}
        foot=${html`<${Acts} act=${t('resolve.write')} busy=${busy} onAct=${write} onClose=${() => setAsking(false)} />`}>
      <${ToWrite} lines=${[
        ['calls', html`${t('confirm.call', { outcome: say('state', outcome) })} <code>${task.call_id}</code>`],
        ['closed', t(`resolve.${outcome}.means`)],
        ['tasks', t('confirm.task')],
        ['ask', html`${t('evidence')}: <q>${evidence.trim()}</q>`],
        ['audit', t('confirm.audit', { who: operator.trim() })]]} />
      <p class="hint">${t('confirm.forever')}</p><//>`}</section>`;
}

function RunNow({ task, onDone }) {
  const [operator, setOperator] = useOperator();
  const [open, setOpen] = useState(false);
  const [state, setState] = useState({ tried: false, busy: false, failure: null });
  const act = async () => {
    setState({ tried: true, busy: false, failure: null });
    if (!operator.trim()) return;
    setState({ tried: true, busy: true, failure: null });
    try {
      await api.run(task.id, { operator: operator.trim() });
      setOpen(false);
      onDone(t('run.done'));
    } catch (failure) {
      setState({ tried: true, busy: false, failure });
    }
  };
  return html`<${Button} icon="play" onClick=${() => setOpen(true)}>${t('run')}<//>
    ${open && html`<${Dialog} title=${t('run.title')} onClose=${() => setOpen(false)}
        foot=${html`<${Acts} act=${t('run.act')} busy=${state.busy} onAct=${act} onClose=${() => setOpen(false)} />`}>
      <p>${t(task.status === 'MANUAL' ? 'run.manual' : 'run.lead')}</p>
      <${TextField} label=${t('operator')} hint=${t('operator.hint')} value=${operator} onInput=${setOperator}
        wrong=${state.tried && !operator.trim() ? t('needed') : ''} maxlength="128" autocomplete="name" />
      ${state.failure && html`<${Failure} error=${state.failure} />`}<//>`}`;
}

export function Task({ id }) {
  const { data: task, error, reload } = useLoad(() => api.task(id), [id]);
  const [told, setTold] = useState(null);
  const now = useNow(5000);
  useAgain(task?.status === 'RUNNING' || (task?.status === 'PENDING' && new Date(task.due_at) <= now), reload);
  const done = (text) => { setTold(text); reload(); };
  const open = task && OPEN.includes(task.status);
  const acts = open && session.role === 'operator';
  const head = html`<a class="crumb" href=${link(['tasks'])}><${Icon} name="back" />${t('nav.tasks')}</a>
    <div class="page-head"><div class="ident"><h1 tabindex="-1" id="page-title">${task ? task.call_id : t('task.title', { id })}</h1>
      ${task && html`<${Copy} text=${task.call_id} what=${t('col.call')} /><${Badge} kind="status" word=${task.status} large />`}</div>
      <div class="actions">${acts && html`<${RunNow} task=${task} onDone=${done} />`}<${Button} icon="refresh" onClick=${reload}>${t('refresh')}<//></div></div>`;
  if (error && !task) return html`${head}<${Failure} error=${error} retry=${reload} />`;
  if (!task) return html`${head}<div class="card"><${Bones} lines=${8} /></div>`;
  const events = inOrder([{ at: task.created_at, icon: 'unknown', tone: 'doubt', title: t('event.task'), said: t(`event.task.${task.cause === 'unknown' ? 'why' : 'rule'}`) },
    ...ofHistory(task.history), ...ofAudit(task.audit)]);
  return html`${head}
    <div class="split"><div class="stack">
      ${told && html`<${Notice} tone="good" icon="done" role="status">${told}<//>`}
      ${error && html`<${Failure} error=${error} retry=${reload} />`}
      <section class="card meaning ${look(task.status).tone}"><p class="say">${t(`task.meaning.${task.status}`)}</p>
        <ul><li><span class="muted"><${Icon} name="calls" /></span><span><a href=${link(['calls', task.call_id], { tenant: task.tenant })}>${t('task.to_call')}</a></span></li></ul></section>
      ${acts && html`<${Resolve} task=${task} onDone=${done} />`}
      ${open && session.role !== 'operator' && html`<${Notice} icon="closed">${t('read_only.task')}<//>`}
      <section class="card"><div class="card-head"><h2>${t('task.timeline')}</h2><span class="hint">${t('task.timeline.hint')}</span></div>
        ${events.length ? html`<${Timeline} events=${events} />` : html`<${Empty} title=${t('task.no_rounds')} />`}</section>
    </div><div class="stack"><section class="card"><h2>${t('call.facts')}</h2><div class="body"><${Facts} rows=${[
      [t('col.call_state'), html`<${Badge} word=${task.call_state} />`],
      [t('col.rounds'), t('task.rounds', { round: task.round, rounds: task.rounds })],
      [t('col.next'), due(task, now)],
      [t('col.age'), since(task.created_at, now)],
      [t('col.last_answer'), heard(task.last_answer) && say('state', heard(task.last_answer))],
      [t('col.route'), task.route], [t('col.tenant'), task.tenant],
      [t('col.key'), task.key && html`<a class="mono" href=${link(['calls'], { q: `key:${task.key}` })}>${task.key}</a>`],
      [t('col.ref'), task.business_ref && html`<a class="mono" href=${link(['calls'], { q: `ref:${task.business_ref}` })}>${task.business_ref}</a>`],
      [t('col.trace'), task.trace_id && html`<a class="mono" href=${link(['calls'], { q: `trace:${task.trace_id}` })}>${task.trace_id}</a>`],
      [t('task.told'), task.told && task.told !== 'none' && say('told', task.told)],
      [t('task.reversal'), task.reversal_call_id && html`<a class="mono" href=${link(['calls', task.reversal_call_id], { tenant: task.tenant })}>${task.reversal_call_id}</a>`],
      [t('col.created'), html`<${Time} at=${task.created_at} fine />`], [t('call.updated'), html`<${Time} at=${task.updated_at} fine />`],
    ]} /></div></section></div></div>`;
}
