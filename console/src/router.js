// SPDX-License-Identifier: MIT
// The address after #, so that what somebody looks at can be sent to somebody else: #/calls?state=UNKNOWN.
import { useEffect, useState } from './base.js';

export function read(hash = location.hash) {
  const [path, query = ''] = hash.replace(/^#/, '').split('?');
  return { parts: path.split('/').filter(Boolean).map(safely), query: new URLSearchParams(query) };
}

function safely(part) {
  try {
    return decodeURIComponent(part);
  } catch {
    return part; // a link that was cut while it was copied
  }
}

/** An address: link(['calls', id], {tenant}). Empty values are left out. */
export function link(parts, query = {}) {
  const filled = Object.entries(query).filter(([, value]) => value !== '' && value != null);
  const text = new URLSearchParams(filled).toString();
  return `#/${parts.map(encodeURIComponent).join('/')}${text ? `?${text}` : ''}`;
}

export function go(parts, query, replace = false) {
  if (replace) location.replace(link(parts, query));
  else location.hash = link(parts, query);
}

export function useRoute() {
  const [route, set] = useState(read);
  useEffect(() => {
    const changed = () => set(read());
    addEventListener('hashchange', changed);
    return () => removeEventListener('hashchange', changed);
  }, []);
  return route;
}
