// SPDX-License-Identifier: MIT
// A plot over time by uPlot. Lines differ in dash as well as in colour; what a line is at now stands in words beneath,
// which is also what a screen reader gets. Gaps stay gaps.
import uPlot from 'uplot';
import { html, useEffect, useRef } from '../base.js';
import { clock, clockFine } from '../format.js';
import { live } from '../sampler.js';

const DASHES = [[], [6, 3], [2, 3], [9, 3, 2, 3], [1, 2], [4, 4]];
const HEIGHT = 160;
const SHOWN_MIN_S = 120; // a plot that has just begun is not stretched over a quarter of an hour

/** The colour that a class has now, in this theme: a canvas knows no custom properties. */
function ink(name) {
  const probe = document.createElement('i');
  probe.className = name;
  document.body.append(probe);
  const { color } = getComputedStyle(probe);
  probe.remove();
  return color;
}

function build(node, lines, format) {
  const axis = { stroke: ink('muted'), font: '11px system-ui, sans-serif', ticks: { show: false },
    grid: { stroke: ink('rule'), width: 1 } };
  return new uPlot({
    width: Math.max(node.clientWidth, 200), height: HEIGHT, legend: { show: false }, padding: [8, 8, 0, 0],
    cursor: { y: false, points: { size: 6 }, drag: { setScale: false } },
    scales: { x: { time: false, range: (u, min, max) => {
      const end = max ?? Date.now() / 1000;
      return [Math.min(min ?? end, end - SHOWN_MIN_S), end];
    } },
      y: { range: (u, min, max) => [0, Math.max(max * 1.15, lines.floor ?? 0) || 1] } },
    axes: [{ ...axis, grid: { show: false }, space: 70, size: 26, incrs: [30, 60, 120, 300], values: (u, at, axis, space, step) => at.map(step < 60 ? clockFine : clock) },
      { ...axis, size: 54, space: 34, values: (u, at) => at.map(format) }],
    series: [{}, ...lines.map((line, i) => ({ stroke: ink(`ink-${line.ink}`), width: 1.75, dash: DASHES[i], points: { show: false },
      spanGaps: false }))],
    hooks: { setCursor: [(u) => tell(u, lines, format)] },
  }, [[], ...lines.map(() => [])], node);
}

/** Writes what the lines were at, under the pointer or at the end, into the words beneath. */
function tell(u, lines, format) {
  const figure = u.root.closest('figure');
  if (!figure || !u.data[0].length) return;
  const at = u.cursor.idx ?? u.data[0].length - 1;
  figure.querySelector('[data-at]').textContent = u.cursor.idx == null ? '' : clockFine(u.data[0][at]);
  figure.querySelectorAll('[data-line]').forEach((node, i) => {
    node.textContent = format(u.data[i + 1][at]);
  });
}

/** lines: [{ name, ink: 1–6, of: sample => number }] over samples of sampler.js; `empty`: said while there are too few. */
export function Plot({ title, lines, samples, format, floor, empty }) {
  const node = useRef(null);
  const plot = useRef(null);
  lines.floor = floor;
  const feed = () => plot.current?.setData([samples.map((s) => s.t),
    ...lines.map((line) => samples.map((s) => (s.calls === undefined ? null : line.of(s) ?? null)))]);
  useEffect(() => {
    const make = () => {
      plot.current?.destroy();
      plot.current = build(node.current, lines, format);
      feed();
    };
    make();
    const box = node.current;
    const watch = new ResizeObserver(() => box.clientWidth && plot.current.setSize({ width: box.clientWidth, height: HEIGHT }));
    watch.observe(box);
    const system = matchMedia('(prefers-color-scheme: dark)');
    system.addEventListener('change', make);
    addEventListener('samekey:theme', make);
    return () => {
      watch.disconnect();
      system.removeEventListener('change', make);
      removeEventListener('samekey:theme', make);
      plot.current.destroy();
    };
  }, [title]);
  useEffect(() => {
    feed();
    if (plot.current) tell(plot.current, lines, format);
  }, [samples.length, live.at, live.error]);
  return html`<figure class="card plot"><figcaption>${title}<span class="hint number" data-at></span></figcaption>
    <div class="space"><div ref=${node} aria-hidden="true" />${samples.length < 2 && html`<p>${empty}</p>`}</div>
    <ul class="keys">${lines.map((line, i) => html`<li><svg class="ink-${line.ink}" viewBox="0 0 18 8" aria-hidden="true"><path
      d="M0 4h18" stroke="currentColor" stroke-width="2.5" stroke-dasharray=${DASHES[i].join(' ')} /></svg>${line.name} <b data-line>–</b></li>`)}</ul>
  </figure>`;
}
