// SPDX-License-Identifier: MIT
// The token, once: what comes back is a session cookie that scripts cannot read.
import { html, useLayoutEffect, useRef, useState } from '../base.js';
import { api } from '../api.js';
import { t } from '../words.js';
import { LanguageChoice, ThemeChoice } from '../frame.js';
import { Mark } from '../parts/icon.js';
import { Button, Failure } from '../parts/parts.js';

export function SignIn({ languageChanged }) {
  const [failure, setFailure] = useState(null);
  const [busy, setBusy] = useState(false);
  const box = useRef(null);
  useLayoutEffect(() => box.current.focus(), []); // before it is seen: what is typed at once is not lost
  const submit = async (event) => {
    event.preventDefault();
    const token = box.current.value.trim();
    if (!token || busy) return box.current.focus();
    setBusy(true);
    try {
      await api.signIn(token);
    } catch (error) {
      setFailure(error);
      setBusy(false);
      box.current.select();
    }
  };
  const wrong = failure?.slug === 'unauthorized';
  return html`<div class="gate"><main><div class="card"><div class="brand"><${Mark} />samekey</div>
    <h1>${t('sign_in.title')}</h1><p class="muted">${t('sign_in.lead')}</p>
    <form onSubmit=${submit}><div class="field"><label for="token">${t('sign_in.token')}</label>
      <input id="token" ref=${box} type="password" name="token" autocomplete="current-password" required spellcheck=${false}
        aria-invalid=${wrong ? 'true' : undefined} aria-describedby="token-wrong" />
      <p class="wrong" id="token-wrong" role="alert">${wrong ? t('sign_in.wrong') : ''}</p></div>
      ${failure && !wrong && html`<${Failure} error=${failure} />`}
      <${Button} main type="submit" busy=${busy}>${t(busy ? 'sign_in.busy' : 'sign_in')}<//></form></div>
    <div class="row icons"><${LanguageChoice} languageChanged=${languageChanged} /><${ThemeChoice} /></div></main></div>`;
}
