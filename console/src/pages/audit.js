// SPDX-License-Identifier: MIT
// What people changed: who, when, what, and on which evidence. Nothing here can be changed.
import { html, useState } from '../base.js';
import { api } from '../api.js';
import { useList } from '../load.js';
import { go, link } from '../router.js';
import { t } from '../words.js';
import { Button, Empty, PageHead, Time } from '../parts/parts.js';
import { Badge } from '../parts/state.js';
import { ListCard } from '../parts/table.js';

export function Audit({ query }) {
  const operator = query.get('operator') ?? '';
  const callId = query.get('call_id') ?? '';
  const [form, setForm] = useState({ operator, call_id: callId });
  const list = useList((cursor) => api.audit({ operator, call_id: callId, cursor }), [operator, callId]);
  const columns = [
    { name: t('col.when'), cell: (a) => html`<${Time} at=${a.at} />` },
    { name: t('operator'), cell: (a) => html`<strong>${a.operator}</strong>` },
    { name: t('col.what'), cell: (a) => html`<span class="row">${t(`audit.${a.action}`)}${a.outcome && html`<${Badge} word=${a.outcome} />`}</span>` },
    { name: t('col.call'), cell: (a) => a.call_id && html`<a class="mono" href=${link(['calls', a.call_id], { tenant: a.tenant })}>${a.call_id}</a>` },
    { name: t('evidence'), cell: (a) => a.evidence && html`<span class="said">${a.evidence}</span>` },
  ];
  const submit = (event) => {
    event.preventDefault();
    go(['audit'], { operator: form.operator.trim(), call_id: form.call_id.trim() });
  };
  const field = (name, label) => html`<div class="field wide"><label for=${`a-${name}`}>${label}</label>
    <input id=${`a-${name}`} value=${form[name]} onInput=${(e) => setForm({ ...form, [name]: e.target.value })} spellcheck=${false} autocomplete="off" /></div>`;
  return html`<${PageHead} title=${t('nav.audit')} lead=${t('audit.lead')}
      actions=${html`<${Button} icon="refresh" onClick=${list.reload}>${t('refresh')}<//>`} />
    <form class="filters" aria-label=${t('filters')} onSubmit=${submit}>${field('operator', t('operator'))}${field('call_id', t('col.call'))}
      <${Button} type="submit">${t('filter.apply')}<//></form>
    <${ListCard} list=${list} countKey="audit.count" caption=${t('nav.audit')} columns=${columns} rowKey=${(a) => a.id}
      empty=${operator || callId ? html`<${Empty} title=${t('audit.none_such')} />` : html`<${Empty} icon="audit" title=${t('audit.none')}><p>${t('audit.none.do')}</p><//>`} />`;
}
