// SPDX-License-Identifier: MIT
// What this browser remembers: theme, language, and the operator's name. A browser that keeps nothing is served too.
const PREFIX = 'samekey.';

export function remembered(name, otherwise = '') {
  try {
    return localStorage.getItem(PREFIX + name) ?? otherwise;
  } catch {
    return otherwise;
  }
}

export function remember(name, value) {
  try {
    if (value) localStorage.setItem(PREFIX + name, value);
    else localStorage.removeItem(PREFIX + name);
  } catch { /* a private window: it holds until the page is closed */ }
}

/** theme: 'light', 'dark', or '' for what the system says. */
export function applyTheme(theme) {
  if (theme) document.documentElement.dataset.theme = theme;
  else delete document.documentElement.dataset.theme;
  window.dispatchEvent(new Event('samekey:theme'));
}
