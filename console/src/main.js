// SPDX-License-Identifier: MIT
// The console: signs in, keeps the frame, and shows the page that the address names.
import { html, render, useEffect, useLayoutEffect, useRef, useState } from './base.js';
import { api, onSession, session } from './api.js';
import { applyTheme, remembered } from './prefs.js';
import { onSample, run } from './sampler.js';
import { language, locale, setLanguage, t } from './words.js';
import { useRoute } from './router.js';
import { Frame } from './frame.js';
import { Failure } from './parts/parts.js';
import { SignIn } from './pages/sign_in.js';
import { Overview } from './pages/overview.js';
import { Calls } from './pages/calls.js';
import { Call } from './pages/call.js';
import { Tasks } from './pages/tasks.js';
import { Task } from './pages/task.js';
import { Swapped } from './pages/swapped.js';
import { Audit } from './pages/audit.js';
import { Lost } from './pages/lost.js';

/** The page of an address: which component, with what, and the place in the frame it belongs to. */
function pageOf({ parts, query }) {
  const [place = 'overview', id, more] = parts;
  if (more === undefined) {
    if (place === 'overview' && !id) return [Overview, {}, 'overview'];
    if (place === 'calls') return id ? [Call, { id, tenant: query.get('tenant') }, 'calls'] : [Calls, { query }, 'calls'];
    if (place === 'tasks') return id ? [Task, { id }, 'tasks'] : [Tasks, { query }, 'tasks'];
    if (place === 'swapped' && !id) return [Swapped, {}, 'swapped'];
    if (place === 'audit' && !id) return [Audit, { query }, 'audit'];
  }
  return [Lost, {}, ''];
}

/** Rises when its source changes, so that what is shown is drawn anew. */
function useTick(subscribe) {
  const [, set] = useState(0);
  useEffect(() => subscribe(() => set((n) => n + 1)), []);
}

function App() {
  const [failure, setFailure] = useState(null);
  const [, redraw] = useState(0);
  const route = useRoute();
  useTick(onSession);
  useTick(onSample);
  const ask = () => api.whoAmI().then(() => setFailure(null), setFailure);
  useEffect(() => { ask(); }, []);
  const inside = session.known && session.role !== 'none';
  useEffect(() => (inside ? run() : undefined), [inside]);

  // A page that was opened gets the focus on its name: a screen reader says where one is, Tab goes on from there.
  const [Page, props, place] = pageOf(route);
  const where = route.parts.join('/');
  const first = useRef(true);
  useLayoutEffect(() => {
    if (!inside) return;
    document.title = t('title', { page: props.id ?? t(place ? `nav.${place}` : 'lost.title') });
    if (first.current) {
      first.current = false;
      return;
    }
    scrollTo(0, 0);
    document.getElementById('page-title')?.focus({ preventScroll: true });
  }, [where, inside, language]);

  const languageChanged = (tag) => {
    setLanguage(tag);
    redraw((n) => n + 1);
  };
  if (failure && !session.known)
    return html`<div class="gate"><main><${Failure} error=${failure} retry=${ask} /></main></div>`;
  if (!session.known) return html`<div class="gate"><main role="status"><p class="muted">${t('loading')}</p></main></div>`;
  if (!inside) return html`<${SignIn} languageChanged=${languageChanged} />`;
  return html`<${Frame} place=${place} query=${route.query} languageChanged=${languageChanged}>
    <${Page} key=${where} ...${props} /><//>`;
}

applyTheme(remembered('theme'));
document.documentElement.lang = locale();
render(html`<${App} />`, document.getElementById('app'));
