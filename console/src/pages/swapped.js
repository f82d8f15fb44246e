// SPDX-License-Identifier: MIT
// Who seems to make a new key for the same thing: that client's retries are not protected, and it should be told.
import { html } from '../base.js';
import { api } from '../api.js';
import { useLoad } from '../load.js';
import { link } from '../router.js';
import { number } from '../format.js';
import { t } from '../words.js';
import { Icon } from '../parts/icon.js';
import { Bones, Button, Copy, Empty, Failure, PageHead, Time } from '../parts/parts.js';

const KINDS = ['suspected_duplicate', 'call_id_reused', 'key_reused'];

function Side({ id, name, tenant }) {
  return html`<div>${id ? html`<a class="mono" href=${link(['calls', id], { tenant })}>${id}</a>` : html`<span class="muted">–</span>`}
    ${name && html`<span class="hint">${t('col.key')} <code>${name}</code></span>`}</div>`;
}

function Client({ client }) {
  return html`<li class="client"><header><h2 class="mono">${client.client}</h2><${Copy} text=${client.client} what=${t('swapped.client')} />
      <span class="count">${t('swapped.times', { n: number(client.count) })}</span>
      <span class="hint">${t(`swapped.by.${client.kind}`)}${client.tenant && !client.tenant.startsWith(client.client) ? ` · ${client.tenant}` : ''} · ${client.routes.join(', ')}</span></header>
    <p class="hint">${KINDS.filter((kind) => client[kind] > 0).map((kind) => t(`swapped.${kind}`, { n: number(client[kind]) })).join(' · ')}
      ${' · '}${t('swapped.last')} <${Time} at=${client.last_at} /></p>
    <ul class="pairs">${client.examples.map((pair) => html`<li class="pair"><${Side} id=${pair.other_call_id} name=${pair.other_key} tenant=${client.tenant} />
      <${Icon} name="send" /><${Side} id=${pair.call_id} name=${pair.key} tenant=${client.tenant} />
      <p>${t(`swapped.pair.${pair.problem}`)} · ${pair.route} · <${Time} at=${pair.at} /></p></li>`)}</ul></li>`;
}

export function Swapped() {
  const { data, error, reload } = useLoad(() => api.suspects(), []);
  return html`<${PageHead} title=${t('swapped.title')} lead=${t('swapped.lead')}
      actions=${html`<${Button} icon="refresh" onClick=${reload}>${t('refresh')}<//>`} />
    ${error && html`<${Failure} error=${error} retry=${reload} />`}
    ${!data && !error && html`<div class="card"><${Bones} /></div>`}
    ${data && html`<section class="card">${data.items.length
      ? html`<ul>${data.items.map((client) => html`<${Client} key=${client.kind + client.client + client.tenant} client=${client} />`)}</ul>`
      : html`<${Empty} icon="done" title=${t('swapped.none')}><p>${t('swapped.none.do')}</p><//>`}</section>
      <p class="foot">${t('swapped.since')} <${Time} at=${data.since} /></p>`}`;
}
