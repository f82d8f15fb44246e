// SPDX-License-Identifier: MIT
// Live: what happens a second, what is not clear, how long things take, and which routes are cut off.
import { html } from '../base.js';
import { latency, number, percent, rate, since, size, span } from '../format.js';
import { useNow } from '../load.js';
import { isStale, live, samples } from '../sampler.js';
import { link } from '../router.js';
import { t } from '../words.js';
import { Icon } from '../parts/icon.js';
import { Bones, Empty, Failure, Notice, PageHead } from '../parts/parts.js';
import { Plot } from '../parts/plot.js';
import { Badge } from '../parts/state.js';
import { Table } from '../parts/table.js';

function Figure({ icon, what, much, unit, more, href, alert }) {
  const inner = html`<div class="what"><${Icon} name=${icon} />${what}</div>
    <div class="much">${much}${unit && html` <small>${unit}</small>`}</div><div class="more">${more}</div>`;
  const kind = `figure ${alert ? `alert ${alert}` : ''}`;
  return href ? html`<a class=${kind} href=${href}>${inner}</a>` : html`<div class=${kind}>${inner}</div>`;
}

function Figures({ answer, rates }) {
  const { now, tasks, totals, latency: took } = answer;
  const served = Object.values(totals.outcomes).reduce((a, b) => a + b, 0);
  return html`<section class="card figures ${isStale() ? 'stale-veil' : ''}" aria-label=${t('overview.figures')}>
    <${Figure} icon="calls" what=${t('figure.calls')} much=${rate(rates?.calls)} unit=${t('unit.per_s')}
      more=${t('figure.calls.more', { n: number(served) })} href=${link(['calls'])} />
    <${Figure} icon="unknown" what=${t('figure.unknown')} much=${number(now.unknown_calls)} alert=${now.unknown_calls > 0 && 'doubt'}
      more=${now.oldest_unknown_s == null ? t('figure.unknown.none') : t('figure.oldest', { age: span(now.oldest_unknown_s) })}
      href=${link(['calls'], { state: 'UNKNOWN' })} />
    <${Figure} icon="person" what=${t('figure.manual')} much=${number(tasks.MANUAL)} alert=${tasks.MANUAL > 0 && 'person'}
      more=${t('figure.pending', { n: number(tasks.PENDING + tasks.RUNNING) })} href=${link(['tasks'], { status: 'MANUAL' })} />
    <${Figure} icon="copy" what=${t('figure.replays')} much=${rate(rates?.replays)} unit=${t('unit.per_s')}
      more=${t('figure.replays.more', { share: percent(totals.replays, served) })} />
    <${Figure} icon="swapped" what=${t('figure.swapped')} much=${number(totals.swapped_keys)} alert=${totals.swapped_keys > 0 && 'doubt'}
      more=${t('figure.since', { age: since(answer.started_at) })} href=${link(['swapped'])} />
    <${Figure} icon="running" what=${t('figure.request')} much=${latency(took.request.p99_s)} more=${t('figure.p50', { p50: latency(took.request.p50_s) })} />
    <${Figure} icon="received" what=${t('figure.commit')} much=${latency(took.commit.p99_s)} more=${t('figure.p50', { p50: latency(took.commit.p50_s) })} />
    <${Figure} icon="waiting" what=${t('figure.queue')} much=${number(now.calls_queued)}
      more=${t('figure.queue.more', { running: number(now.calls_running), store: number(now.store_queue) })} />
  </section>`;
}

function Routes({ routes, rates }) {
  const columns = [
    { name: t('col.route'), main: true, cell: (r) => html`<a href=${link(['calls'], { route: r.route })}>${r.route}</a>` },
    { name: t('col.breaker'), cell: (r) => html`<${Badge} kind="breaker" word=${r.breaker} />${r.breaker !== 'closed' &&
      html` <span class="hint">${t('breaker.of', { n: r.breakers_open, of: r.upstreams })}</span>`}` },
    { name: t('figure.calls'), number: true, cell: (r) => `${rate(rates?.routes[r.route])} ${t('unit.per_s')}` },
    { name: t('col.running'), number: true, cell: (r) => number(r.running) },
    { name: t('col.queued'), number: true, cell: (r) => number(r.queued) },
    { name: t('outcome.success'), number: true, cell: (r) => number(r.outcomes.success) },
    { name: t('col.refused'), number: true, cell: (r) => number(r.outcomes.rejected + r.outcomes.failed + r.outcomes.not_executed) },
    { name: t('outcome.unknown'), number: true, cell: (r) => number(r.outcomes.unknown) },
    { name: t('figure.replays'), number: true, cell: (r) => number(r.replays) },
    { name: t('figure.swapped'), number: true, cell: (r) => number(r.swapped_keys) },
  ];
  return html`<section class="card"><div class="card-head"><h2>${t('overview.routes')}</h2><span class="hint">${t('overview.routes.hint')}</span></div>
    ${routes.length ? html`<${Table} caption=${t('overview.routes')} columns=${columns} rows=${routes} rowKey=${(r) => r.route} />`
      : html`<${Empty} icon="plug" title=${t('overview.no_routes')} />`}</section>`;
}

function Refusals({ refusals }) {
  const rows = Object.entries(refusals).sort((a, b) => b[1] - a[1]);
  if (!rows.length) return null;
  return html`<section class="card"><div class="card-head"><h2>${t('overview.refusals')}</h2><span class="hint">${t('overview.refusals.hint')}</span></div>
    <ul class="links">${rows.map(([slug, n]) => html`<li><code>${slug}</code><span class="muted number">${number(n)}</span></li>`)}</ul></section>`;
}

const line = (name, ink, of) => ({ name, ink, of });

export function Overview() {
  useNow();
  const { last: answer, rates, error } = live;
  const perSecond = (v) => rate(v);
  const waiting = t('plot.waiting');
  return html`<${PageHead} title=${t('nav.overview')} />
    <div class="stack">
    ${answer && isStale() && html`<${Notice} tone="doubt" icon="plug" title=${t('overview.stale', { age: since(live.at) })} role="status">${t('overview.stale.do')}<//>`}
    ${error && !answer && html`<${Failure} error=${error} />`}
    ${answer && !answer.ready && html`<${Notice} tone="bad" icon="warn" title=${t('overview.not_ready')}>${t('overview.not_ready.do')}<//>`}
    ${answer ? html`<${Figures} answer=${answer} rates=${rates} />` : !error && html`<div class="card"><${Bones} lines=${3} /></div>`}
    </div>
    <div class="stack"><div class="plots">
      <${Plot} title=${t('plot.calls')} samples=${samples} format=${perSecond} floor=${1} empty=${waiting} lines=${[
        line(t('outcome.success'), 2, (s) => s.success), line(t('col.refused'), 3, (s) => s.rejected + s.failed + s.not_executed),
        line(t('outcome.unknown'), 4, (s) => s.unknown), line(t('outcome.pending'), 1, (s) => s.pending)]} />
      <${Plot} title=${t('plot.repeats')} samples=${samples} format=${perSecond} floor=${1} empty=${waiting} lines=${[
        line(t('figure.replays'), 1, (s) => s.replays), line(t('plot.joins'), 6, (s) => s.joins),
        line(t('figure.swapped'), 4, (s) => s.swapped)]} />
      <${Plot} title=${t('plot.latency')} samples=${samples} format=${latency} floor=${0.001} empty=${waiting} lines=${[
        line(t('plot.request_p99'), 1, (s) => s.requestP99), line(t('plot.request_p50'), 6, (s) => s.requestP50),
        line(t('plot.commit_p99'), 5, (s) => s.commitP99)]} />
      <${Plot} title=${t('plot.queue')} samples=${samples} format=${(v) => number(v, 1)} floor=${4} empty=${waiting} lines=${[
        line(t('col.running'), 1, (s) => s.running), line(t('col.queued'), 3, (s) => s.queued),
        line(t('plot.store_queue'), 5, (s) => s.storeQueue)]} />
    </div>
    ${answer && html`<${Routes} routes=${answer.routes} rates=${rates} /><${Refusals} refusals=${answer.refusals} />
      <p class="foot">${t('overview.foot', { node: answer.node, version: answer.version, calls: number(answer.now.calls_stored),
        size: size(answer.now.bytes_on_disk), age: since(answer.started_at) })}</p>`}</div>`;
}
