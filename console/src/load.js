// SPDX-License-Identifier: MIT
// Asking for something a page shows: the last answer stays on the page while the next one is asked for, and an answer
// that comes after the page has moved on is dropped.
import { useCallback, useEffect, useRef, useState } from './base.js';

const EMPTY_PAGES_MAX = 8; // how many pages without a row are followed before the reader is asked

/** { data, error, busy, reload } of an asynchronous question, asked again when a dependency changes. */
export function useLoad(question, dependencies) {
  const [state, set] = useState({ data: null, error: null, busy: true });
  const turn = useRef(0);
  const reload = useCallback(async () => {
    const mine = ++turn.current;
    set((before) => ({ ...before, busy: true }));
    try {
      const data = await question();
      if (mine === turn.current) set({ data, error: null, busy: false });
    } catch (error) {
      if (mine === turn.current) set((before) => ({ ...before, error, busy: false }));
    }
  }, dependencies);
  useEffect(() => {
    set({ data: null, error: null, busy: true });
    reload();
    return () => { turn.current++; };
  }, [reload]);
  return { ...state, reload };
}

/** A list by cursor: { items, cursor, reached, error, busy, more, reload }. A page may be empty and not the last. */
export function useList(question, dependencies) {
  const [state, set] = useState({ items: null, cursor: null, reached: null, error: null, busy: true });
  const turn = useRef(0);
  const read = useCallback(async (before, cursor) => {
    const mine = ++turn.current;
    set((old) => ({ ...old, busy: true }));
    try {
      let items = before;
      let reached = null;
      for (let page = 0; page < EMPTY_PAGES_MAX; page++) {
        const answer = await question(cursor);
        if (mine !== turn.current) return;
        items = [...items, ...answer.items];
        ({ next_cursor: cursor, reached } = answer);
        if (answer.items.length || !cursor) break;
      }
      set({ items, cursor, reached, error: null, busy: false });
    } catch (error) {
      if (mine === turn.current) set((old) => ({ ...old, error, busy: false }));
    }
  }, dependencies);
  useEffect(() => {
    set({ items: null, cursor: null, reached: null, error: null, busy: true });
    read([], null);
    return () => { turn.current++; };
  }, [read]);
  return { ...state, more: () => read(state.items ?? [], state.cursor), reload: () => read([], null) };
}

/** Asks again every so often while something is still moving and somebody looks. */
export function useAgain(moving, reload, everyMs = 2500) {
  useEffect(() => {
    if (!moving) return undefined;
    const timer = setInterval(() => { if (!document.hidden) reload(); }, everyMs);
    return () => clearInterval(timer);
  }, [moving, reload]);
}

/** A date that moves every so often, for ages. */
export function useNow(everyMs = 1000) {
  const [now, set] = useState(Date.now);
  useEffect(() => {
    const timer = setInterval(() => set(Date.now()), everyMs);
    return () => clearInterval(timer);
  }, [everyMs]);
  return now;
}
