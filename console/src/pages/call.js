// SPDX-License-Identifier: MIT
// One call: what its state means, what may be done next, what happened, what it answered, and what belongs to it.
import { html, useState } from '../base.js';
import { api, session } from '../api.js';
import { useAgain, useLoad } from '../load.js';
import { link } from '../router.js';
import { t } from '../words.js';
import { Erase } from './erase.js';
import { Icon } from '../parts/icon.js';
import { Bones, Button, Copy, Empty, Facts, Failure, Time } from '../parts/parts.js';
import { Result } from '../parts/result.js';
import { Badge, look, reason, say } from '../parts/state.js';
import { inOrder, ofAttempts, ofAudit, ofEnding, ofHistory, Timeline } from '../parts/timeline.js';

/** The answer to "may I send it again?", which is what the reader came for. */
function Meaning({ call }) {
  const task = call.compensation;
  const open = task && ['PENDING', 'RUNNING', 'MANUAL'].includes(task.status);
  const yes = (icon, tone, text) => html`<li><span class=${tone}><${Icon} name=${icon} /></span><span>${text}</span></li>`;
  return html`<section class="card meaning ${look(call.state).tone}" aria-label=${t('call.meaning')}>
    <p class="say">${t(`meaning.${call.state}`)}</p>
    <ul>
      ${call.reversed_by && yes('undo', 'muted', html`${t('call.undone')} <a class="mono" href=${link(['calls', call.reversed_by], { tenant: call.tenant })}>${call.reversed_by}</a>`)}
      ${call.reason && yes('info', 'muted', reason(call))}
      ${yes('send', 'muted', say('next', call.next_action))}
      ${call.safe_new_key ? yes('done', 'good', t('safe.yes')) : yes('closed', call.state === 'SUCCESS' ? 'muted' : 'doubt', t(call.state === 'SUCCESS' && !call.reversed_by ? 'safe.done' : 'safe.no'))}
      ${open && yes(look(task.status).icon, look(task.status).tone, html`${t(`task.meaning.${task.status}`)} <a href=${link(['tasks', task.id])}>${t('call.to_task')}</a>`)}
    </ul></section>`;
}

function Other({ id, tenant, badge, note }) {
  return html`<li><a class="mono" href=${link(['calls', id], { tenant })}>${id}</a>${badge}${note && html`<span class="muted">${note}</span>`}</li>`;
}

function Relations({ call }) {
  const single = [['original_call_id', 'call.original'], ['reverses', 'call.reverses'], ['reversed_by', 'call.reversed_by']]
    .filter(([name]) => call[name]);
  const trace = call.same_trace ?? [];
  if (!single.length && !trace.length) return null;
  return html`<section class="card"><h2>${t('call.relations')}</h2><ul class="links">
    ${single.map(([name, key]) => html`<${Other} id=${call[name]} tenant=${call.tenant} note=${t(key)} />`)}
    ${trace.map((other) => html`<${Other} key=${other.id} id=${other.call_id} tenant=${other.tenant} badge=${html`<${Badge} word=${other.state} />`} note=${t('call.same_trace')} />`)}
    ${trace.length >= 50 && html`<li><a href=${link(['calls'], { trace_id: call.trace_id })}>${t('call.whole_trace')}</a></li>`}</ul></section>`;
}

function truth(value) {
  return t(value === true ? 'yes' : value === false ? 'no' : 'not_known');
}

const finder = (kind, text) => html`<span class="row"><a class="mono" href=${link(['calls'], { q: `${kind}:${text}` })}>${text}</a>
  <${Copy} text=${text} what=${t(`col.${kind}`)} /></span>`;

function About({ call }) {
  return html`<section class="card"><h2>${t('call.facts')}</h2><div class="body"><${Facts} rows=${[
    [t('col.key'), call.key && finder('key', call.key)],
    [t('col.ref'), call.business_ref && finder('ref', call.business_ref)],
    [t('col.trace'), call.trace_id && finder('trace', call.trace_id)],
    [t('col.route'), call.route],
    [t('col.tenant'), !call.tenant.startsWith(call.credential) && call.tenant], // without `tenant` the credential is it
    [t('call.credential'), call.credential && html`<code>${call.credential}</code>`],
    [t('call.received'), truth(call.received)],
    [t('call.executed'), truth(call.executed)],
    [t('call.final'), truth(call.final)],
    [t('call.proof'), call.proof && say('proof', call.proof)],
    [t('call.source'), call.call_id_source && say('source', call.call_id_source)],
    [t('col.created'), call.created_at && html`<${Time} at=${call.created_at} fine />`],
    [t('call.updated'), call.updated_at && html`<${Time} at=${call.updated_at} fine />`],
    [t('call.ended'), call.ended_at && html`<${Time} at=${call.ended_at} fine />`],
    [t('call.expires'), call.expires_at && html`<${Time} at=${call.expires_at} />`],
    [t('call.owner'), call.owner && html`<code>${call.owner}</code>`],
    [t('call.fence'), call.fence],
  ]} /></div></section>`;
}

export function Call({ id, tenant }) {
  const { data: call, error, reload } = useLoad(() => api.call(id, tenant), [id, tenant]);
  useAgain(call?.id != null && !call.ended_at, reload);
  const [erasing, setErasing] = useState(false);
  const known = call?.id != null;
  const head = html`<a class="crumb" href=${link(['calls'])}><${Icon} name="back" />${t('nav.calls')}</a>
    <div class="page-head"><div class="ident"><h1 tabindex="-1" id="page-title">${id}</h1><${Copy} text=${id} what=${t('col.call')} />
      ${call && html`<${Badge} word=${call.state} large />`}</div>
      <div class="actions">${known && call.result?.body != null && session.role === 'operator' && html`<${Button} quiet icon="erase" onClick=${() => setErasing(true)}>${t('erase')}<//>`}
        <${Button} icon="refresh" onClick=${reload}>${t('refresh')}<//></div></div>`;
  if (error && !call) return html`${head}<${Failure} error=${error} retry=${reload} />
    ${error.slug === 'ambiguous-call-id' && html`<p><a href=${link(['calls'], { q: `call:${id}` })}>${t('call.all_tenants')}</a></p>`}`;
  if (!call) return html`${head}<div class="card"><${Bones} lines=${8} /></div>`;
  if (!known) return html`${head}<section class="card"><${Empty} icon="absent" title=${t('call.absent')}>
    <p>${call.reason ? reason(call) : t('call.absent.what')}</p><//></section>`;
  const events = inOrder([...ofEnding(call), ...ofAttempts(call.attempts), ...ofHistory(call.compensation?.history ?? []), ...ofAudit(call.audit)]);
  return html`${head}
    ${error && html`<${Failure} error=${error} retry=${reload} />`}
    <div class="split"><div class="stack">
      <${Meaning} call=${call} />
      <section class="card"><div class="card-head"><h2>${t('call.timeline')}</h2><span class="hint">${t('call.timeline.hint')}</span></div><${Timeline} events=${events} /></section>
      <${Result} call=${call} />
    </div><div class="stack">
      <${About} call=${call} /><${Relations} call=${call} />
    </div></div>
    ${erasing && html`<${Erase} call=${call} onClose=${() => setErasing(false)} onDone=${() => { setErasing(false); reload(); }} />`}`;
}
