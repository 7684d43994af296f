#!/usr/bin/env bash
# Runs every fuzz target for the given time: scripts/fuzz.sh 60s [package...]
set -euo pipefail
cd "$(dirname "$0")/.."
time=${1:-30s}
shift || true
packages=${*:-$(grep -rl --include='*_test.go' '^func Fuzz' . | xargs -n1 dirname | sort -u)}
for package in $packages; do
  for target in $(grep -rhoE --include='*_test.go' '^func Fuzz[A-Za-z0-9_]*' "$package" | sed 's/^func //' | sort -u); do
    echo "== $package $target $time"
    go test -run '^$' -fuzz "^$target\$" -fuzztime "$time" "$package"
  done
done
