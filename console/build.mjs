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
import { minify } from 'terser';
import zopfli from '@gfx/zopfli';
import { createHash } from 'node:crypto';
import { mkdir, readFile, writeFile } from 'node:fs/promises';
import { dirname, join, resolve } from 'node:path';
import { fileURLToPath, pathToFileURL } from 'node:url';
import { gunzipSync } from 'node:zlib';

const BYTES_MAX = 60 * 1000; // gzipped, all files together
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

/** Replaces exactly one place, or stops: a new version of a library must not slip through a cut that no longer fits. */
function cut(text, pattern, by, what) {
  if (!pattern.test(text)) throw new Error(`console/build.mjs: ${what} is not as it was; look at the cut again`);
  return text.replace(pattern, by);
}

const slim = {
  name: 'slim',
  setup(bundle) {
    // A third of uPlot is for plots that the console does not have: bars, steps, splines and scatter, logarithmic axes, its
    // legend (the console's is text that a screen reader reads) and its names of months. They hang on objects and
    // options where no bundler can see that nobody uses them, so they are cut here.
    bundle.onLoad({ filter: /uPlot\.esm\.js$/ }, async ({ path }) => {
      let text = await readFile(path, 'utf8');
      text = cut(text, /\nuPlot\.assign = assign;[\s\S]*\nexport \{/, '\nexport {', 'the end of uPlot');
      text = cut(text, /const showLegend = legend\.show;/, 'const showLegend = false;', "uPlot's legend");
      text = cut(text, /let isTime = mode == 1 && /, 'const isTime = false && ', "uPlot's series");
      text = cut(text, /let isTime = /, 'const isTime = false && ', "uPlot's axes");
      text = cut(text, /\tconst _tzDate[\s\S]*?(?=\tconst activeIdxs)/, '', "uPlot's dates");
      text = cut(text, /(const \[ *timeIncrs.*\n){2}/, '', "uPlot's time steps");
      // Here one `mode` is used and one `distr`, so questions after them have their answers.
      for (const [pattern, answer] of [[/\bmode == 2\b/g, false], [/\bmode == 1\b/g, true],
        [/\b(\w+\.)*distr == +1\b/g, true], [/\b(\w+\.)*distr >?== +\d+\b/g, false]])
        text = cut(text, pattern, String(answer), "uPlot's choices");
      return { contents: text };
    });
    // The second string table has the keys of the first: only its texts are sent.
    bundle.onLoad({ filter: /words\/zh\.js$/ }, async ({ path }) => {
      const table = async (name) => (await import(pathToFileURL(join(dirname(path), name)))).default;
      const [zh, en] = [await table('zh.js'), await table('en.js')];
      const keys = [...new Set([...Object.keys(en), ...Object.keys(zh)])];
      return { contents: `import en from './en.js';\nconst texts = ${JSON.stringify(keys.map((key) => zh[key] ?? 0))};\n` +
        `const more = ${JSON.stringify(keys.filter((key) => !(key in en)))};\n` +
        'export default Object.fromEntries([...Object.keys(en), ...more].map((key, i) => [key, texts[i]]).filter(([, text]) => text));' };
    });
  },
};

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
  plugins: [slim],
  logLevel: 'warning',
});
const script = join(out, 'console.js');
const code = await minify((await readFile(script, 'utf8')).replace(/\n\s+/g, '\n'), {
  module: true, ecma: 2020, compress: { passes: 3, unsafe_arrows: true, keep_fargs: false }, mangle: { properties: { regex: /^_/ } },
  format: { preamble: '/* samekey console, MIT. In it: preact (c) Jason Miller, uPlot (c) Leon Sorokin, both MIT; htm (c) Google Inc., Apache-2.0: console/NOTICE */' },
});
await writeFile(script, code.code);
for (const name of ['index.html', 'icon.svg'])
  await writeFile(join(out, name), await readFile(join(here, 'src', name)));

let total = 0;
for (const file of files) {
  const text = await readFile(join(out, file.name));
  file.packed = Buffer.from(await zopfli.gzipAsync(text, { numiterations: 15 })); // gzip that takes its time: 5 % less
  if (!gunzipSync(file.packed).equals(text)) throw new Error(`console/build.mjs: ${file.name} did not survive its packing`);
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
