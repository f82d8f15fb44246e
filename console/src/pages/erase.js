// SPDX-License-Identifier: MIT
// Erasing what a call stored: asked for by law or by a customer, and not to be undone.
import { html, useState } from '../base.js';
import { api } from '../api.js';
import { t } from '../words.js';
import { Acts, TextField, ToWrite, useOperator } from '../parts/act.js';
import { Dialog, Failure } from '../parts/parts.js';

export function Erase({ call, onClose, onDone }) {
  const [operator, setOperator] = useOperator();
  const [why, setWhy] = useState('');
  const [tried, setTried] = useState(false);
  const [busy, setBusy] = useState(false);
  const [failure, setFailure] = useState(null);
  const act = async () => {
    setTried(true);
    if (!operator.trim() || !why.trim()) return;
    setBusy(true);
    try {
      await api.erase(call.call_id, call.tenant, { operator: operator.trim(), evidence: why.trim() });
      onDone();
    } catch (error) {
      setFailure(error);
      setBusy(false);
    }
  };
  const needed = (text) => (tried && !text.trim() ? t('needed') : '');
  return html`<${Dialog} title=${t('erase.title')} onClose=${onClose}
      foot=${html`<${Acts} act=${t('erase.act')} danger busy=${busy} onAct=${act} onClose=${onClose} />`}>
    <${TextField} label=${t('erase.why')} hint=${t('erase.why.hint')} value=${why} onInput=${setWhy} wrong=${needed(why)} rows=${2} maxlength="4000" />
    <${TextField} label=${t('operator')} hint=${t('operator.hint')} value=${operator} onInput=${setOperator} wrong=${needed(operator)} maxlength="128" autocomplete="name" />
    <${ToWrite} lines=${[['erase', t('erase.gone', { call: call.call_id })], ['key', t('erase.stays')], ['audit', t('confirm.audit', { who: operator || '…' })]]} />
    ${failure && html`<${Failure} error=${failure} />`}<//>`;
}
