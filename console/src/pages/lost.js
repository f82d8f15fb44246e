// SPDX-License-Identifier: MIT
import { html } from '../base.js';
import { link } from '../router.js';
import { t } from '../words.js';
import { Empty, PageHead } from '../parts/parts.js';

export function Lost() {
  return html`<${PageHead} title=${t('lost.title')} /><section class="card">
    <${Empty} title=${t('lost.what')}><p><a href=${link([])}>${t('lost.home')}</a></p><//></section>`;
}
