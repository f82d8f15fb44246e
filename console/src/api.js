// SPDX-License-Identifier: MIT
// The gateway's admin API as the pages use it (docs/admin-api.md). Every answer is data; nothing of it is ever markup.
const PATIENCE_MS = 15000;

/** What went wrong, as the gateway says it (RFC 9457), or slug "unreachable" when it says nothing. */
export class Problem extends Error {
  constructor(slug, status, body = {}) {
    super(body.detail || body.title || slug);
    Object.assign(this, { slug, status, detail: body.detail ?? '', parameter: body.parameter, state: body.state,
      retryAfter: body.retry_after_s });
  }
}

export const session = { role: 'none', by: null, csrf: null, tokenRequired: true, known: false };
const listeners = new Set();

export function onSession(listener) {
  listeners.add(listener);
  return () => listeners.delete(listener);
}

function takeSession(document) {
  Object.assign(session, {
    role: document.role, by: document.by, csrf: document.csrf ?? null, tokenRequired: document.token_required,
    version: document.version, node: document.node, known: true,
  });
  listeners.forEach((listener) => listener());
}

async function ask(method, path, body) {
  const headers = { Accept: 'application/json' };
  if (body !== undefined) headers['Content-Type'] = 'application/json';
  if (method !== 'GET' && session.csrf) headers['X-CSRF-Token'] = session.csrf;
  let answer;
  let document;
  try {
    answer = await fetch(path, { method, headers, body: body === undefined ? undefined : JSON.stringify(body),
      credentials: 'same-origin', cache: 'no-store', redirect: 'error', signal: AbortSignal.timeout(PATIENCE_MS) });
    document = await answer.json().catch(() => null);
  } catch {
    throw new Problem('unreachable', 0);
  }
  // A call that is not known is an answer, not a failure: its document says so.
  if (answer.ok || (answer.status === 404 && document?.call_id && document?.state)) {
    if (document === null) throw new Problem('unreadable', answer.status);
    return document;
  }
  const slug = String(document?.type ?? '').replace(/^urn:samekey:/, '') || `http-${answer.status}`;
  if (answer.status === 401 && session.known && session.role !== 'none')
    takeSession({ role: 'none', by: null, token_required: true, version: session.version, node: session.node });
  throw new Problem(slug, answer.status, document ?? {});
}

function query(parameters) {
  const filled = Object.entries(parameters).filter(([, value]) => value !== '' && value != null);
  return filled.length ? `?${new URLSearchParams(filled)}` : '';
}

const id = encodeURIComponent;

export const api = {
  async whoAmI() {
    takeSession(await ask('GET', '/v1/session'));
  },
  async signIn(token) {
    takeSession(await ask('POST', '/v1/session', { token }));
  },
  async signOut() {
    takeSession(await ask('DELETE', '/v1/session'));
  },
  overview: () => ask('GET', '/v1/overview'),
  calls: (filter) => ask('GET', `/v1/calls${query(filter)}`),
  call: (callId, tenant) => ask('GET', `/v1/calls/${id(callId)}${query({ tenant })}`),
  erase: (callId, tenant, body) => ask('POST', `/v1/calls/${id(callId)}/erase${query({ tenant })}`, body),
  tasks: (filter) => ask('GET', `/v1/compensations${query(filter)}`),
  task: (number) => ask('GET', `/v1/compensations/${id(number)}`),
  resolve: (number, body) => ask('POST', `/v1/compensations/${id(number)}/resolve`, body),
  run: (number, body) => ask('POST', `/v1/compensations/${id(number)}/run`, body),
  resolveMany: (body) => ask('POST', '/v1/compensations/resolve', body),
  audit: (filter) => ask('GET', `/v1/audit${query(filter)}`),
  suspects: () => ask('GET', '/v1/suspects'),
};
