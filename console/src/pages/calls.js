// SPDX-License-Identifier: MIT
// Finding calls: one box that takes a callId, a key, a business reference or a trace, and filters beside it.
import { html, useState } from '../base.js';
import { api } from '../api.js';
import { useList } from '../load.js';
import { live } from '../sampler.js';
import { go, link } from '../router.js';
import { t } from '../words.js';
import { Button, Empty, PageHead, Time } from '../parts/parts.js';
import { Badge, say } from '../parts/state.js';
import { ListCard } from '../parts/table.js';

const STATES = ['RECEIVED', 'PROCESSING', 'SUCCESS', 'FAILED', 'UNKNOWN'];
const RANGES = { '15m': 900, '1h': 3600, '24h': 86400, '7d': 604800 };
const KINDS = { call: 'call_id', key: 'key', ref: 'business_ref', trace: 'trace_id' };

/** What a searched text may be: the parameters to ask with, the likeliest first. `key:…` and its like say it outright. */
export function recognise(text) {
  const named = text.match(/^(call|key|ref|trace):\s*(.+)$/i);
  if (named) return [[KINDS[named[1].toLowerCase()], named[2]]];
  const parent = text.match(/^[0-9a-f]{2}-([0-9a-f]{32})-[0-9a-f]{16}-[0-9a-f]{2}$/i);
  if (parent) return [['trace_id', parent[1].toLowerCase()]];
  const quoted = text.match(/^"(.*)"$/);
  if (quoted) return [['key', quoted[1]]];
  const all = [['key', text], ['business_ref', text]];
  if (/^[0-9a-f]{32}$/i.test(text)) all.unshift(['trace_id', text.toLowerCase()]);
  if (/^[A-Za-z0-9._:-]{1,128}$/.test(text)) all.unshift(['call_id', text]);
  return all;
}

/** since and until of a range: a name, or two moments. */
function rangeOf(query) {
  const range = query.get('range') ?? '';
  if (range in RANGES) return { since: new Date(Date.now() - RANGES[range] * 1000).toISOString() };
  return { since: query.get('since'), until: query.get('until') };
}

export function callColumns() {
  return [
    { name: t('col.call'), main: true, cell: (c) => html`<a class="mono" href=${link(['calls', c.call_id], { tenant: c.tenant })}>${c.call_id}</a>` },
    { name: t('col.state'), cell: (c) => html`<${Badge} word=${c.state} />${c.reason && html`<span class="hint under">${say('reason.short', c.reason)}</span>`}` },
    { name: t('col.route'), cell: (c) => c.route },
    { name: t('col.key'), cell: (c) => (c.key || c.business_ref) && html`${c.key && html`<code class="clip" title=${c.key}>${c.key}</code>`}
      ${c.business_ref && html`<span class="hint clip" title=${c.business_ref}>${t('col.ref')} ${c.business_ref}</span>`}` },
    { name: t('col.attempts'), number: true, cell: (c) => c.attempt_count },
    { name: t('col.created'), cell: (c) => html`<${Time} at=${c.created_at} short />` },
  ];
}

function Found({ title, filter, empty, onEmpty }) {
  const list = useList((cursor) => api.calls({ ...filter, cursor }), [JSON.stringify(filter)]);
  const nothing = list.items?.length === 0 && !list.cursor && !list.error;
  if (onEmpty && nothing) return onEmpty;
  return html`<${ListCard} title=${title} list=${list} countKey="calls.count" caption=${title ?? t('nav.calls')} empty=${empty}
    columns=${callColumns()} rowKey=${(c) => c.id} />`;
}

/** Several questions at once, one list each; those without an answer vanish, unless none has any. */
function Search({ text, filter }) {
  const kinds = recognise(text);
  const list = useList(async () => {
    const answers = await Promise.all(kinds.map(([name, value]) => api.calls({ ...filter, [name]: value, limit: 1 })));
    return { items: kinds.filter((_, i) => answers[i].items.length || answers[i].next_cursor), next_cursor: null, reached: null };
  }, [text, JSON.stringify(filter)]);
  if (!list.items || list.error || !list.items.length)
    return html`<${ListCard} list=${list} countKey="calls.count" empty=${html`<${Empty} title=${t('calls.nothing', { text })}>
      <p>${t('calls.nothing.do')}</p><//>`} />`;
  return html`<div class="stack">${list.items.map(([name, value]) => html`<${Found} key=${name + value}
    title=${t(`calls.as.${name}`, { text: value })} filter=${{ ...filter, [name]: value }}
    onEmpty=${list.items.length > 1 ? html`<span />` : null} empty=${html`<${Empty} title=${t('calls.nothing', { text })} />`} />`)}</div>`;
}

const local = (iso) => {
  const at = new Date(iso);
  return iso && !Number.isNaN(at.getTime()) ? new Date(at - at.getTimezoneOffset() * 60000).toISOString().slice(0, 16) : '';
};

function Filters({ query }) {
  const [custom, setCustom] = useState(query.has('since') || query.has('until'));
  const routes = live.last?.routes.map((route) => route.route) ?? [];
  const chosen = query.get('route') ?? '';
  const set = (changes) => go(['calls'], { ...Object.fromEntries(query), ...changes });
  const setRange = (event) => {
    const range = event.target.value;
    setCustom(range === 'custom');
    if (range !== 'custom') set({ range, since: '', until: '' });
    else set({ range: '' });
  };
  const setMoment = (name) => (event) => {
    const at = new Date(event.target.value);
    set({ range: '', [name]: Number.isNaN(at.getTime()) ? '' : at.toISOString() });
  };
  return html`<form class="filters" aria-label=${t('filters')} onSubmit=${(event) => event.preventDefault()}>
    <div class="field"><label for="f-state">${t('col.state')}</label><select id="f-state" value=${query.get('state') ?? ''}
      onChange=${(e) => set({ state: e.target.value })}><option value="">${t('filter.any')}</option>
      ${STATES.map((state) => html`<option value=${state}>${say('state', state)}</option>`)}</select></div>
    <div class="field"><label for="f-route">${t('col.route')}</label><select id="f-route" value=${chosen}
      onChange=${(e) => set({ route: e.target.value })}><option value="">${t('filter.any')}</option>
      ${[...new Set([...routes, chosen])].filter(Boolean).map((route) => html`<option value=${route}>${route}</option>`)}</select></div>
    <div class="field"><label for="f-range">${t('filter.range')}</label><select id="f-range" value=${custom ? 'custom' : query.get('range') ?? ''}
      onChange=${setRange}><option value="">${t('filter.any_time')}</option>
      ${Object.keys(RANGES).map((range) => html`<option value=${range}>${t(`range.${range}`)}</option>`)}
      <option value="custom">${t('range.custom')}</option></select></div>
    ${custom && ['since', 'until'].map((name) => html`<div class="field wide"><label for=${`f-${name}`}>${t(`filter.${name}`)}</label>
      <input id=${`f-${name}`} type="datetime-local" value=${local(query.get(name))} onChange=${setMoment(name)} /></div>`)}
    ${query.size > 0 && html`<${Button} quiet icon="close" onClick=${() => { setCustom(false); go(['calls']); }}>${t('filter.clear')}<//>`}
  </form>`;
}

export function Calls({ query }) {
  const [turn, again] = useState(0);
  const text = query.get('q')?.trim() ?? '';
  const names = ['state', 'route', 'key', 'business_ref', 'trace_id', 'tenant'];
  const filter = { ...Object.fromEntries(names.map((name) => [name, query.get(name)])), ...rangeOf(query) };
  // The start of "the last hour" moves with every drawing; what is asked must not, or it would be asked without end.
  const [frozen, freeze] = useState({ of: null, filter });
  const of = `${query}#${turn}`;
  if (frozen.of !== of) freeze({ of, filter });
  const asked = frozen.of === of ? frozen.filter : filter;
  const filtered = query.size > 0;
  return html`<${PageHead} title=${text ? t('calls.results', { text }) : t('nav.calls')} lead=${text ? null : t('calls.lead')}
      actions=${html`<${Button} icon="refresh" onClick=${() => again(turn + 1)}>${t('refresh')}<//>`} />
    <${Filters} query=${query} />
    ${text ? html`<${Search} key=${of} text=${text} filter=${asked} />`
      : html`<${Found} key=${of} filter=${asked} empty=${filtered ? html`<${Empty} title=${t('calls.none')}><p>${t('calls.none.do')}</p><//>`
        : html`<${Empty} icon="plug" title=${t('calls.first')}><p>${t('calls.first.do')}</p>
          <pre class="text">curl -X POST http://GATEWAY/orders \\
  -H 'X-Call-Id: order-42-1' -H 'Idempotency-Key: order-42' \\
  -H 'Content-Type: application/json' -d '{"order_no":"42"}'</pre><//>`} />`}`;
}
