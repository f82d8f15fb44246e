// SPDX-License-Identifier: MIT
// Icons of one weight on a grid of 24. They never stand alone for a meaning: a word is beside them or in the label.
import { html } from '../base.js';

const shapes = {
  overview: 'M4 19V9m5 10V5m5 14v-7m5 7V8',
  calls: 'M4 6h16M4 12h16M4 18h10',
  tasks: 'M9 6h11M9 12h11M9 18h11M4 6l1 1 2-2M4 12l1 1 2-2M4 18l1 1 2-2',
  swapped: 'M4 8h13l-3-3m6 11H7l3 3',
  audit: 'M6 3h9l4 4v14H6zM15 3v4h4M9 12h7m-7 4h7',
  search: 'M11 18a7 7 0 1 1 0-14 7 7 0 0 1 0 14m9 2-4-4',
  done: 'M12 21a9 9 0 1 1 0-18 9 9 0 0 1 0 18M8 12l3 3 5-6',
  failed: 'M12 21a9 9 0 1 1 0-18 9 9 0 0 1 0 18M9 9l6 6m0-6-6 6',
  unknown: 'M12 21a9 9 0 1 1 0-18 9 9 0 0 1 0 18M9.5 9.5c0-3.4 5-3.3 5 0 0 1.9-2.5 2.2-2.5 4.2m0 3v.1',
  running: 'M12 21a9 9 0 1 1 0-18 9 9 0 0 1 0 18M12 7v5l3 2',
  received: 'M4 13l3-8h10l3 8v6H4zm0 0h5l1 2h4l1-2h5',
  absent: 'M12 3a9 9 0 0 1 4 1m3.500 3a9 9 0 0 1 1.500 4m-1 4a9 9 0 0 1-3 4m-4 2a9 9 0 0 1-4-1m-4-3a9 9 0 0 1-1.500-4m1-4a9 9 0 0 1 3-4',
  person: 'M12 12a4 4 0 1 1 0-8 4 4 0 0 1 0 8m-8 9c0-4 3.500-6 8-6s8 2 8 6',
  waiting: 'M7 3h10M7 21h10M8 3c0 5 8 5 8 9s-8 4-8 9m8-18c0 5-8 5-8 9s8 4 8 9',
  undo: 'M9 7 4 12l5 5m-5-5h10a6 6 0 0 1 6 6',
  closed: 'M6 11h12v9H6zm2.500 0V8a3.500 3.500 0 0 1 7 0v3',
  ask: 'M4 5h16v11H9l-5 4z',
  send: 'M4 12h15m-5-6 6 6-6 6',
  fence: 'M5 21V8l2-3 2 3v13m6 0V8l2-3 2 3v13M3 12h18M3 17h18',
  bell: 'M6 17V11a6 6 0 0 1 12 0v6l2 1H4zm4 4h4',
  differ: 'M5 9h14M5 15h14M16 5 8 19',
  copy: 'M9 9h11v11H9zM15 9V4H4v11h5',
  sun: 'M12 16a4 4 0 1 1 0-8 4 4 0 0 1 0 8m0-13v2m0 14v2m9-9h-2M5 12H3m15.400-6.400-1.400 1.400M7 17l-1.400 1.400m12.800 0L17 17M7 7 5.600 5.600',
  settings: 'M4 7h9m4 0h3M4 17h3m4 0h9M15 9.500a2.500 2.500 0 1 0 0-5 2.500 2.500 0 0 0 0 5m-6 10a2.500 2.500 0 1 0 0-5 2.500 2.500 0 0 0 0 5',
  out: 'M14 4h5v16h-5M4 12h11m-4-4 4 4-4 4',
  warn: 'M12 4 2.500 20h19zM12 10v4m0 3v.1',
  info: 'M12 21a9 9 0 1 1 0-18 9 9 0 0 1 0 18m0-10v5m0-8v.1',
  refresh: 'M20 11a8 8 0 0 0-14-4L4 9m0-5v5h5m-5 4a8 8 0 0 0 14 4l2-2m0 5v-5h-5',
  back: 'M15 5l-7 7 7 7',
  link: 'M10 14a4 4 0 0 0 6 .5l3-3a4 4 0 0 0-6-6l-1 1m2 3.500a4 4 0 0 0-6-.5l-3 3a4 4 0 0 0 6 6l1-1',
  play: 'M7 4l12 8-12 8z',
  erase: 'M4 7h16M9 7V4h6v3m-8 0 1 13h8l1-13',
  key: 'M8 16a4 4 0 1 1 0-8 4 4 0 0 1 0 8m4-4h9m-3 0v4m-3-4v2',
  plug: 'M9 3v5m6-5v5M6 8h12v3a6 6 0 0 1-12 0zm6 9v4',
  close: 'M6 6l12 12M18 6 6 18',
};

export function Icon({ name }) {
  return html`<svg viewBox="0 0 24 24" fill="none" stroke="currentColor" stroke-width="1.9" stroke-linecap="round"
    stroke-linejoin="round" aria-hidden="true" focusable="false"><path d=${shapes[name]} /></svg>`;
}

export function Mark() {
  return html`<img src="/icon.svg" alt="" width="24" height="24" />`;
}
