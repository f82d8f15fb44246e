// SPDX-License-Identifier: MIT
// The frame around every page: the places, the one search box, whether what is shown is live, and the settings.
import { html, useEffect, useLayoutEffect, useRef, useState } from './base.js';
import { api, session } from './api.js';
import { since } from './format.js';
import { useNow } from './load.js';
import { applyTheme, remember, remembered } from './prefs.js';
import { isStale, live } from './sampler.js';
import { language, languages, t } from './words.js';
import { go, link } from './router.js';
import { Icon, Mark } from './parts/icon.js';
import { Announce, Button } from './parts/parts.js';

const places = ['overview', 'calls', 'tasks', 'swapped', 'audit'];

function Find({ query }) {
  const box = useRef(null);
  const asked = query.get('q') ?? '';
  useLayoutEffect(() => { box.current.value = asked; }, [asked]); // not later: it would overwrite what is typed meanwhile
  useLayoutEffect(() => {
    const key = (event) => {
      const typing = event.target.closest?.('input, textarea, select, dialog, [contenteditable]');
      if (event.key !== '/' || event.ctrlKey || event.metaKey || event.altKey || typing) return;
      event.preventDefault();
      box.current.focus();
      box.current.select();
    };
    addEventListener('keydown', key);
    return () => removeEventListener('keydown', key);
  }, []);
  const submit = (event) => {
    event.preventDefault();
    const q = box.current.value.trim();
    if (q) go(['calls'], { q });
  };
  return html`<form class="find" role="search" onSubmit=${submit}><${Icon} name="search" />
    <input ref=${box} type="search" name="q" aria-label=${t('find.label')} placeholder=${t('find.hint')} autocomplete="off"
      autocapitalize="off" spellcheck=${false} maxlength="300" /><kbd aria-hidden="true">/</kbd></form>`;
}

function Pulse() {
  useNow(); // an answer that does not come draws nothing anew
  const stale = isStale();
  const text = !live.at && !live.error ? t('pulse.first') : stale
    ? live.at ? t('pulse.stale', { age: since(live.at) }) : t('pulse.away') : t('pulse.live');
  return html`<span class="pulse ${stale ? 'stale' : ''}"><i aria-hidden="true" />${text}</span>
    <${Announce} text=${stale ? t('pulse.away') : ''} />`;
}

export function LanguageChoice({ languageChanged }) {
  return html`<div class="field"><label for="language">${t('settings.language')}</label>
    <select id="language" value=${language} onChange=${(e) => languageChanged(e.target.value)}>
      ${languages.map(([tag, name]) => html`<option value=${tag} lang=${tag} selected=${tag === language}>${name}</option>`)}</select></div>`;
}

export function ThemeChoice() {
  const [theme, set] = useState(remembered('theme'));
  const choose = (event) => {
    set(event.target.value);
    remember('theme', event.target.value);
    applyTheme(event.target.value);
  };
  return html`<div class="field"><label for="theme">${t('settings.theme')}</label>
    <select id="theme" value=${theme} onChange=${choose}>${['', 'light', 'dark'].map((name) =>
      html`<option value=${name} selected=${name === theme}>${t(`theme.${name || 'system'}`)}</option>`)}</select></div>`;
}

function Menu({ languageChanged }) {
  const [open, set] = useState(false);
  const box = useRef(null);
  useEffect(() => {
    if (!open) return undefined;
    const away = (event) => { if (!box.current?.contains(event.target)) set(false); }; // it may be gone already
    const key = (event) => {
      if (event.key !== 'Escape') return;
      set(false);
      box.current?.querySelector('button').focus();
    };
    addEventListener('pointerdown', away);
    addEventListener('focusin', away);
    addEventListener('keydown', key);
    return () => {
      removeEventListener('pointerdown', away);
      removeEventListener('focusin', away);
      removeEventListener('keydown', key);
    };
  }, [open]);
  return html`<div class="menu" ref=${box}>
    <${Button} quiet icon="settings" aria-expanded=${String(open)} aria-controls="settings" aria-label=${t('settings')}
      title=${t('settings')} onClick=${() => set(!open)} />
    ${open && html`<div id="settings"><${LanguageChoice} languageChanged=${languageChanged} /><${ThemeChoice} />
      <p class="hint">${t(`role.${session.role}`)} · ${session.node} · ${session.version}</p>
      ${session.by === 'session' && html`<${Button} icon="out" onClick=${() => api.signOut().catch(() => api.whoAmI())}>${t('sign_out')}<//>`}
    </div>`}</div>`;
}

export function Frame({ place, query, languageChanged, children }) {
  const waiting = live.last?.tasks?.MANUAL ?? 0;
  const skip = (event) => {
    event.preventDefault();
    document.getElementById('main').focus();
  };
  return html`<div class="frame">
    <header class="top"><a class="skip" href="#main" onClick=${skip}>${t('skip')}</a>
      <a class="brand" href=${link([])} aria-label=${t('brand')}><${Mark} />samekey</a>
      <${Find} query=${query} /><${Pulse} />
      ${session.role === 'reader' && html`<span class="badge calm"><${Icon} name="closed" />${t('read_only')}</span>`}
      <${Menu} languageChanged=${languageChanged} /></header>
    <nav class="side" aria-label=${t('nav')}><ul>${places.map((name) => html`<li><a href=${link(name === 'overview' ? [] : [name])}
      aria-current=${name === place ? 'page' : undefined}><${Icon} name=${name} /><span>${t(`nav.${name}`)}</span>
      ${name === 'tasks' && waiting > 0 && html`<span class="count" title=${t('nav.waiting', { n: waiting })}>${waiting > 999 ? '999+' : waiting}
        <span class="visually-hidden">${t('nav.waiting', { n: waiting })}</span></span>`}</a></li>`)}</ul></nav>
    <main class="main" id="main" tabindex="-1">${children}</main></div>`;
}
