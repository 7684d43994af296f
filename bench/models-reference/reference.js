// Measures the reference host on an SQLite file that tabellion could serve as well.
//
//   node reference.js FOLDER FILE DEFINITIONS
//
// FOLDER is what install.sh printed, FILE the database, DEFINITIONS a file with an array of model definitions. Each line of
// standard input names one measurement; each gets one line of standard output. The first is {"ready": true} with versions.
//
//   in:  {"seconds": 1, "calls": [{"call": "query", "gql": "...", "params": {...}}, ...]}
//   out: {"times": [milliseconds a call, sorted], "elapsed": seconds, "first": answer of the first call} or {"error": "..."}
//
// A call is query or queryOne (gql, params), insert or insertMany (model, data) or update (model, condition, data). They
// are made one after another, again from the first when all were made; every answer is written as JSON, as for a client.
'use strict';

const fs = require('node:fs');
const readline = require('node:readline');
const { createRequire } = require('node:module');

const [folder, file, definitions] = process.argv.slice(2);
const from = createRequire(folder + '/');
const Database = from('better-sqlite3');
const { init, store, executors } = from('nodejs-store');

// make carries out one call.
function make(c) {
  switch (c.call) {
    case 'query': return store.query(c.gql, c.params);
    case 'queryOne': return store.queryOne(c.gql, c.params);
    case 'insert': return store.insert(c.model, c.data);
    case 'insertMany': return store.insertMany(c.model, c.data);
    case 'update': return store.update(c.model, c.condition, c.data);
    default: throw new Error('no call ' + c.call);
  }
}

// measure makes calls for some seconds, after a few that do not count.
async function measure({ seconds, calls }) {
  const warm = performance.now() + seconds * 100;
  const first = JSON.stringify(await make(calls[0]));
  for (let i = 1; performance.now() < warm; i++) JSON.stringify(await make(calls[i % calls.length]));
  const times = [];
  const start = performance.now();
  for (let i = 0, now = start; now < start + seconds * 1000; i++) {
    JSON.stringify(await make(calls[i % calls.length]));
    const end = performance.now();
    times.push(end - now);
    now = end;
  }
  const elapsed = (performance.now() - start) / 1000;
  return { times: times.sort((a, b) => a - b), elapsed, first: JSON.parse(first) };
}

async function main() {
  const db = new Database(file);
  db.pragma('synchronous = FULL'); // as tabellion has it; the file says WAL
  const sqlite = db.prepare('SELECT sqlite_version()').pluck().get();
  for (const d of JSON.parse(fs.readFileSync(definitions, 'utf8'))) store.register(d);
  await init({ default: executors.createConnection('sqlite', db) });
  store.setContext({ userId: 'bench', roles: ['admin'] });
  const say = (v) => process.stdout.write(JSON.stringify(v) + '\n');
  say({ ready: true, node: process.version, sqlite });
  for await (const line of readline.createInterface({ input: process.stdin })) {
    try {
      say(await measure(JSON.parse(line)));
    } catch (e) {
      say({ error: String(e && e.message || e) });
    }
  }
  db.close();
}

main().catch((e) => { console.error(e); process.exit(1); });
