#!/usr/bin/env bash
# Installs the reference host and its SQLite driver with npm, once, into a folder outside the checkout, and prints that
# folder. The driver is compiled or fetched for the node that runs here.
set -euo pipefail
command -v node >/dev/null && command -v npm >/dev/null || { echo "node or npm is not installed" >&2; exit 2; }
dir=${TABELLION_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/tabellion-test}/models-reference-2.0.4-node-$(node -p process.versions.modules)
if [ ! -e "$dir/.complete" ]; then
  rm -rf "$dir"
  mkdir -p "$dir"
  cat >"$dir/package.json" <<'JSON'
{"private": true, "dependencies": {"nodejs-store": "2.0.4", "rust-store-node": "2.0.4", "better-sqlite3": "12.11.1"},
 "overrides": {"better-sqlite3": "$better-sqlite3"}}
JSON
  (cd "$dir" && npm install --no-audit --no-fund --loglevel=error >&2)
  (cd "$dir" && node -e 'new (require("better-sqlite3"))(":memory:"); require("nodejs-store")')
  touch "$dir/.complete"
fi
echo "$dir"
