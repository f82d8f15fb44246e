// SPDX-License-Identifier: MIT
// The only file that knows which view library this is. htm builds elements without eval and without innerHTML, so a
// text of a caller can only ever become a text node, and the strict Content-Security-Policy holds.
export { html, render } from 'htm/preact';
export { useCallback, useEffect, useId, useLayoutEffect, useMemo, useRef, useState } from 'preact/hooks';
