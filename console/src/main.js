import { render, html } from './base.js';
render(html`<p>samekey</p>`, document.getElementById('app'));
