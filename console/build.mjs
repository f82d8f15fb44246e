// SPDX-License-Identifier: MIT
//
// Bundles the console and turns it into C.
//
//   node console/build.mjs OUT      writes OUT/console.js, OUT/console.css, OUT/index.html, OUT/icon.svg
//                                   and OUT/console_assets.c, the table that src/gateway/console.h declares
//
// Each file goes into the program compressed, as it will be sent, and named by its SHA-256 (the ETag), so that the
// program compresses nothing at run time. What all of it weighs on the wire has a limit, and going over it fails the
// build: a console that is opened over a phone line in an outage must be there at once.
import { build } from 'esbuild';
import { createHash } from 'node:crypto';
import { mkdir, readFile, writeFile } from 'node:fs/promises';
import { dirname, join, resolve } from 'node:path';
import { fileURLToPath } from 'node:url';
import { gzipSync } from 'node:zlib';

const BYTES_MAX = 80 * 1024; // gzipped, all files together
const here = dirname(fileURLToPath(import.meta.url));
const out = process.argv[2];
if (!out) {
  console.error('console/build.mjs: say where to, e.g. node console/build.mjs build/console');
  process.exit(64);
}

// The order is the order of the table. A path is what a browser asks for.
const files = [
  { path: '/', name: 'index.html', type: 'text/html; charset=utf-8' },
  { path: '/console.js', name: 'console.js', type: 'text/javascript; charset=utf-8' },
  { path: '/console.css', name: 'console.css', type: 'text/css; charset=utf-8' },
  { path: '/icon.svg', name: 'icon.svg', type: 'image/svg+xml' },
];

const bytesOf = (data) => [...data].map((byte) => byte + ',').join('').replace(/(.{1,110},)/g, '  $1\n');

function row(file, index) {
  return `  {.path = ${JSON.stringify(file.path)}, .type = ${JSON.stringify(file.type)}, ` +
    `.etag = "\\"${file.hash}\\"",\n   .bytes = bytes_${index}, .size = sizeof bytes_${index}, .gzip = true},\n`;
}

await mkdir(out, { recursive: true });
await build({
  absWorkingDir: here,
  entryPoints: [{ in: 'src/main.js', out: 'console' }, { in: 'src/style/index.css', out: 'console' }],
  outdir: resolve(out),
  bundle: true,
  minify: true,
  format: 'esm',
  target: ['chrome100', 'firefox100', 'safari15.4'],
  charset: 'utf8',
  legalComments: 'none',
  banner: { js: '/* samekey console; with preact, htm and uPlot (MIT) */' },
  logLevel: 'warning',
});
for (const name of ['index.html', 'icon.svg'])
  await writeFile(join(out, name), await readFile(join(here, 'src', name)));

let total = 0;
for (const file of files) {
  const text = await readFile(join(out, file.name));
  file.packed = gzipSync(text, { level: 9 });
  file.hash = createHash('sha256').update(text).digest('hex').slice(0, 32);
  total += file.packed.length;
}
if (total > BYTES_MAX) {
  console.error(`console/build.mjs: ${total} bytes gzipped, the limit is ${BYTES_MAX}`);
  process.exit(1);
}
const table = files.map(row).join('');
await writeFile(join(out, 'console_assets.c'),
  '/* Made by console/build.mjs. */\n#include "gateway/console.h"\n\n' +
  files.map((file, i) => `static const unsigned char bytes_${i}[] = {\n${bytesOf(file.packed)}};\n`).join('\n') +
  `\nconst struct console_asset console_assets[] = {\n${table}};\n` +
  'const size_t console_assets_count = sizeof console_assets / sizeof *console_assets;\n');
console.error(`console: ${total} bytes gzipped`);
