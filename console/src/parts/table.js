// SPDX-License-Identifier: MIT
// A table, and the list by cursor around it. Roles are written out because on a phone the rows are laid out as cards, and
// a browser forgets that they were a table when their display changes.
import { html } from '../base.js';
import { moment } from '../format.js';
import { t } from '../words.js';
import { Announce, Bones, Button, Failure } from './parts.js';

/** One box in each cell, since a cell of a phone's card is laid out beside its name; an empty one is not shown there. */
function Cell({ of }) {
  return of == null || of === '' ? html`<div class="none">–</div>` : html`<div>${of}</div>`;
}

/** columns: [{ name, cell(row), main, number }] */
export function Table({ caption, columns, rows, rowKey }) {
  return html`<div class="scroll"><table class="table" role="table"><caption class="visually-hidden">${caption}</caption>
    <thead role="rowgroup"><tr role="row">${columns.map((column) => html`
      <th role="columnheader" scope="col" class=${column.number ? 'number' : ''}>${column.name}</th>`)}</tr></thead>
    <tbody role="rowgroup">${rows.map((row) => html`<tr role="row" key=${rowKey(row)}>${columns.map((column) => html`
      <td role="cell" data-label=${column.name} class=${column.main ? 'main-cell' : column.number ? 'number' : ''}><${Cell} of=${column.cell(row)} /></td>`)}
    </tr>`)}</tbody></table></div>`;
}

/** A card with a list of useList(): its bones, its failure, what is shown when it is empty, and how to go on. */
export function ListCard({ title, list, empty, countKey, ...table }) {
  const { items, cursor, reached, error, busy } = list;
  const shown = items?.length ?? 0;
  return html`<section class="card" aria-busy=${busy ? 'true' : 'false'}>
    ${title && html`<h2>${title}</h2>`}
    ${error && html`<div class="body"><${Failure} error=${error} retry=${list.reload} /></div>`}
    ${!items && !error && html`<${Bones} />`}
    ${items && shown > 0 && html`<${Table} ...${table} rows=${items} />`}
    ${items && shown === 0 && !cursor && !error && empty}
    ${items && (shown > 0 || cursor) && html`<div class="pager"><span class="hint">${t(countKey, { n: shown })}${
      cursor && reached ? ` · ${t('list.reached', { at: moment(reached) })}` : ''}</span>
      ${cursor && html`<${Button} busy=${busy} onClick=${list.more}>${t(shown ? 'list.more' : 'list.further')}<//>`}</div>`}
    <${Announce} text=${items && !busy ? t(countKey, { n: shown }) : ''} />
  </section>`;
}
