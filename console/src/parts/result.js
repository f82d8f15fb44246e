// SPDX-License-Identifier: MIT
// A stored answer: status, headers, body. Always text, whatever it says it is; long ones only in part until asked for.
import { html, useMemo, useState } from '../base.js';
import { size } from '../format.js';
import { t } from '../words.js';
import { Button, Copy, Empty } from './parts.js';

const SHOWN_MAX = 8 * 1024;
const PRETTY_MAX = 512 * 1024; // more is not parsed: a page must not stop for a body

/** The body in parsed lines if it is JSON, without turning its numbers into doubles: only white space is added. */
export function pretty(text) {
  if (text.length > PRETTY_MAX) return null;
  try {
    const value = JSON.parse(text);
    if (value === null || typeof value !== 'object') return null;
  } catch {
    return null;
  }
  let out = '';
  let depth = 0;
  const line = () => `\n${'  '.repeat(depth)}`;
  for (const [token] of text.matchAll(/"(?:[^"\\]|\\.)*"|[{}[\],:]|[^\s"{}[\],:]+/g)) {
    if (token === '{' || token === '[') {
      depth++;
      out += token + line();
    } else if (token === '}' || token === ']') {
      depth--;
      out = /[{[]\s*$/.test(out) ? out.trimEnd() + token : out + line() + token;
    } else if (token === ',') out += token + line();
    else out += token === ':' ? ': ' : token;
  }
  return out;
}

function Body({ result }) {
  const [whole, setWhole] = useState(false);
  const [raw, setRaw] = useState(false);
  const text = result.body ?? '';
  const binary = result.body_encoding === 'base64';
  const formed = useMemo(() => (binary ? null : pretty(text)), [text, binary]);
  const shown = formed !== null && !raw ? formed : text;
  const cut = !whole && shown.length > SHOWN_MAX;
  if (!text) return html`<p class="hint">${t('result.empty')}</p>`;
  return html`<div class="sub"><h3>${t('result.body')}</h3><span class="hint">${size(binary ? Math.floor((text.length * 3) / 4) : new Blob([text]).size)}${
    binary ? ` · ${t('result.binary')}` : ''}</span>
      ${formed !== null && html`<${Button} quiet tiny aria-pressed=${String(raw)} onClick=${() => setRaw(!raw)}>${t('result.raw')}<//>`}
      <${Copy} text=${text} what=${t('result.body')} /></div>
    <pre class="text" tabindex="0" role="region" aria-label=${t('result.body')}>${cut ? shown.slice(0, SHOWN_MAX) : shown}</pre>
    ${cut && html`<div class="row"><span class="hint">${t('result.cut', { shown: size(SHOWN_MAX) })}</span><${Button} tiny onClick=${() => setWhole(true)}>${t('result.whole')}<//></div>`}`;
}

export function Result({ call }) {
  const { result } = call;
  const kept = result && result.body != null;
  return html`<section class="card"><div class="card-head"><h2>${t('result.title')}</h2>
      ${result?.status > 0 && html`<span class="badge">HTTP ${result.status}</span>`}</div>
    ${kept ? html`<div class="body stack">
      ${result.headers?.length > 0 && html`<div><div class="sub"><h3>${t('result.headers')}</h3></div>
        <ul class="head-lines">${result.headers.map(([name, value]) => html`<li><b>${name}:</b> ${value}</li>`)}</ul></div>`}
      <div><${Body} result=${result} /></div></div>`
      : html`<${Empty} icon="received" title=${t('result.none')}><p>${t(call.ended_at ? 'result.none.ended' : 'result.none.open')}</p><//>`}
  </section>`;
}
