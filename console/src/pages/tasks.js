// SPDX-License-Identifier: MIT
// The queue of calls whose ending is not clear: how old, how many rounds, when the next one is due; and settling many.
import { html, useState } from '../base.js';
import { api, session } from '../api.js';
import { since, span } from '../format.js';
import { useList, useNow } from '../load.js';
import { live } from '../sampler.js';
import { go, link } from '../router.js';
import { t } from '../words.js';
import { Bulk } from './bulk.js';
import { Icon } from '../parts/icon.js';
import { Button, Empty, Notice, PageHead } from '../parts/parts.js';
import { Badge, heard, look, say } from '../parts/state.js';
import { ListCard } from '../parts/table.js';

export const STATUSES = ['MANUAL', 'PENDING', 'RUNNING', 'RESOLVED', 'REVERSED', 'CLOSED'];

export function due(task, now) {
  if (!task.due_at) return null;
  const seconds = (new Date(task.due_at) - now) / 1000;
  return seconds <= 0 ? t('task.due_now') : t('task.due_in', { time: span(seconds) });
}

export function taskColumns(now) {
  return [
    { name: t('col.call'), main: true, cell: (k) => html`<a class="mono" href=${link(['tasks', k.id])}>${k.call_id}</a>
      <span class="hint clip">${[k.route, k.business_ref || k.key].filter(Boolean).join(' · ')}</span>` },
    { name: t('col.status'), cell: (k) => html`<${Badge} kind="status" word=${k.status} />` },
    { name: t('col.call_state'), cell: (k) => html`<${Badge} word=${k.call_state} />` },
    { name: t('col.age'), number: true, cell: (k) => since(k.created_at, now) },
    { name: t('col.rounds'), number: true, cell: (k) => `${k.round} / ${k.rounds}` },
    { name: t('col.next'), cell: (k) => due(k, now) },
    { name: t('col.last_answer'), cell: (k) => heard(k.last_answer) && say('state', heard(k.last_answer)) },
  ];
}

export function Tasks({ query }) {
  const [bulk, setBulk] = useState(false);
  const [told, setTold] = useState(null);
  const now = useNow(5000);
  const status = query.get('status') ?? '';
  const route = query.get('route') ?? '';
  const list = useList((cursor) => api.tasks({ status, route, cursor }), [status, route]);
  const counts = live.last?.tasks ?? {};
  const routes = [...new Set([...(live.last?.routes ?? []).map((r) => r.route), route])].filter(Boolean);
  const tab = (name) => html`<a href=${link(['tasks'], { status: name, route })} aria-current=${name === status ? 'true' : undefined}>
    ${name && html`<${Icon} name=${look(name).icon} />`}${name ? say('status', name) : t('filter.all')}
    ${counts[name] > 0 && ['MANUAL', 'PENDING', 'RUNNING'].includes(name) && html`<span class="count">${counts[name]}</span>`}</a>`;
  return html`<${PageHead} title=${t('nav.tasks')} lead=${t('tasks.lead')} actions=${html`
      ${session.role === 'operator' && html`<${Button} icon="tasks" onClick=${() => setBulk(true)}>${t('bulk')}<//>`}
      <${Button} icon="refresh" onClick=${list.reload}>${t('refresh')}<//>`} />
    ${told && html`<div class="stack"><${Notice} tone="good" icon="done" role="status">${told}<//><span /></div>`}
    <nav class="tabs" aria-label=${t('col.status')}>${['', ...STATUSES].map(tab)}</nav>
    ${routes.length > 1 && html`<div class="filters"><div class="field"><label for="t-route">${t('col.route')}</label>
      <select id="t-route" value=${route} onChange=${(e) => go(['tasks'], { status, route: e.target.value })}><option value="">${t('filter.any')}</option>
        ${routes.map((name) => html`<option value=${name}>${name}</option>`)}</select></div></div>`}
    <${ListCard} list=${list} countKey="tasks.count" caption=${t('nav.tasks')} columns=${taskColumns(now)} rowKey=${(k) => k.id}
      empty=${status || route ? html`<${Empty} icon=${look(status).icon} title=${t('tasks.none_such')} />`
        : html`<${Empty} icon="done" title=${t('tasks.none')}><p>${t('tasks.none.do')}</p><//>`} />
    ${bulk && html`<${Bulk} routes=${routes} route=${route} onClose=${() => { setBulk(false); list.reload(); }}
      onDone=${(text) => { setBulk(false); setTold(text); list.reload(); }} />`}`;
}
