// SPDX-License-Identifier: MIT
// What every act of a person needs: a name, evidence, and a moment in which it is said exactly what will be written.
import { html, useId, useState } from '../base.js';
import { remember, remembered } from '../prefs.js';
import { t } from '../words.js';
import { Icon } from './icon.js';
import { Button } from './parts.js';

/** The operator's name, kept in this browser: it is asked for once. */
export function useOperator() {
  const [operator, set] = useState(remembered('operator'));
  return [operator, (name) => { set(name); remember('operator', name); }];
}

export function TextField({ label, hint, value, onInput, wrong, rows, ...rest }) {
  const id = useId();
  const shared = { id, value, 'aria-describedby': `${id}-hint`, 'aria-invalid': wrong ? 'true' : undefined,
    onInput: (event) => onInput(event.target.value), ...rest };
  return html`<div class="field"><label for=${id}>${label}</label>
    ${rows ? html`<textarea ...${shared} rows=${rows} />` : html`<input ...${shared} />`}
    <p id="${id}-hint" class=${wrong ? 'wrong' : 'hint'}>${wrong || hint}</p></div>`;
}

export function OutcomeField({ value, onChange, wrong }) {
  const name = useId();
  return html`<fieldset aria-describedby="${name}-wrong"><legend>${t('resolve.outcome')}</legend><div class="choices">
    ${['SUCCESS', 'FAILED'].map((outcome) => html`<label class="choice"><input type="radio" name=${name} value=${outcome}
      checked=${value === outcome} onChange=${() => onChange(outcome)} /><strong>${t(`resolve.${outcome}`)}</strong>
      <span>${t(`resolve.${outcome}.means`)}</span></label>`)}</div>
    <p id="${name}-wrong" class="field"><span class="wrong" role="alert">${wrong}</span></p></fieldset>`;
}

export function ToWrite({ lines }) {
  return html`<div><p class="hint">${t('confirm.lead')}</p><ul class="to-write">${lines.filter(Boolean).map(([icon, text]) =>
    html`<li><${Icon} name=${icon} /><span>${text}</span></li>`)}</ul></div>`;
}

/** Cancel and the act itself, for the foot of a dialog. */
export function Acts({ act, danger, busy, onAct, onClose }) {
  return html`<${Button} onClick=${onClose}>${t('cancel')}<//><${Button} main=${!danger} danger=${danger} busy=${busy} onClick=${onAct}>${act}<//>`;
}
