// SPDX-License-Identifier: MIT
// Small things every page is made of.
import { html, useEffect, useLayoutEffect, useRef, useState } from '../base.js';
import { moment, utc } from '../format.js';
import { has, t } from '../words.js';
import { Icon } from './icon.js';

/** A moment in the reader's time zone, in UTC on hover. */
export function Time({ at, fine, short }) {
  if (!at) return html`<span class="muted">–</span>`;
  return html`<time dateTime=${at} title=${utc(at)}>${moment(at, fine, short)}</time>`;
}

export function Button({ icon, main, danger, quiet, tiny, busy, type = 'button', children, ...rest }) {
  const kinds = ['button', main && 'main-act', danger && 'danger', quiet && 'quiet', tiny && 'tiny'].filter(Boolean);
  // aria-disabled and not disabled: a button that vanishes from under the keyboard loses the reader's place.
  return html`<button type=${type} class=${kinds.join(' ')} aria-disabled=${busy ? 'true' : undefined} ...${rest}
    onClick=${busy ? (event) => event.preventDefault() : rest.onClick}>${icon && html`<${Icon} name=${icon} />`}${children}</button>`;
}

export function Copy({ text, what }) {
  const [done, set] = useState(false);
  useEffect(() => {
    const timer = done && setTimeout(() => set(false), 1500);
    return () => clearTimeout(timer);
  }, [done]);
  const copy = async () => {
    try {
      await navigator.clipboard.writeText(text);
      set(true);
    } catch { /* without permission the text is still there to be selected */ }
  };
  if (!navigator.clipboard) return null;
  return html`<${Button} quiet tiny icon=${done ? 'done' : 'copy'} onClick=${copy} aria-label=${t('copy', { what })}
    title=${t('copy', { what })} /><span class="visually-hidden" role="status">${done ? t('copied') : ''}</span>`;
}

export function Notice({ tone = 'calm', icon = 'info', title, children, role, className = '' }) {
  return html`<div class="notice ${tone} ${className}" role=${role}><${Icon} name=${icon} />
    <div>${title && html`<strong>${title}</strong>`}<div>${children}</div></div></div>`;
}

export function Empty({ icon = 'search', title, children }) {
  return html`<div class="empty"><${Icon} name=${icon} /><h2>${title}</h2>${children}</div>`;
}

export function Bones({ lines = 6 }) {
  return html`<div class="bones" role="status"><span class="visually-hidden">${t('loading')}</span>
    ${Array.from({ length: lines }, () => html`<span class="bone" />`)}</div>`;
}

/** A problem in plain words: what it is, what the gateway said of it, what may be done. */
export function Failure({ error, retry }) {
  const slug = has(`problem.${error.slug}`) ? error.slug : 'other';
  const advice = `problem.${slug}.do`;
  return html`<${Notice} tone="bad" icon=${slug === 'unreachable' ? 'plug' : 'warn'} title=${t(`problem.${slug}`)} role="alert">
    <p>${t(has(advice) ? advice : 'problem.other.do')}</p>
    ${error.detail && html`<p class="hint" lang="en">${error.slug}: ${error.detail}</p>`}
    ${retry && html`<div class="row"><${Button} icon="refresh" onClick=${retry}>${t('again')}<//></div>`}
  <//>`;
}

export function Facts({ rows }) {
  return html`<dl class="facts">${rows.filter((row) => row && row[1] != null && row[1] !== '' && row[1] !== false).map(([name, value]) =>
    html`<dt>${name}</dt><dd>${value}</dd>`)}</dl>`;
}

/** The head of a page: its name, which gets the focus when the page is opened, so that a screen reader says it. */
export function PageHead({ title, lead, actions, children }) {
  return html`<div class="page-head"><h1 tabindex="-1" id="page-title">${title}</h1>${children}
    ${actions && html`<div class="actions">${actions}</div>`}${lead && html`<p class="lead"><span>${lead}</span></p>`}</div>`;
}

/** Tells a screen reader; nothing is seen. */
export function Announce({ text }) {
  return html`<div class="visually-hidden" role="status" aria-live="polite">${text}</div>`;
}

/** A dialog that keeps the focus until it is closed, and gives it back. */
export function Dialog({ title, onClose, foot, children }) {
  const box = useRef(null);
  useLayoutEffect(() => {
    const before = document.activeElement;
    box.current.showModal();
    box.current.querySelector('h2').focus(); // its name is read first
    return () => before?.isConnected && before.focus();
  }, []);
  return html`<dialog ref=${box} aria-labelledby="dialog-title" onCancel=${(event) => { event.preventDefault(); onClose(); }}>
    <div class="dialog-body"><h2 id="dialog-title" tabindex="-1">${title}</h2>${children}</div>
    <div class="dialog-foot">${foot}</div></dialog>`;
}
