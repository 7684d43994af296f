#!/usr/bin/env bash
# make test: every suite, one after the other, each with its seconds. The first failing suite does not hide the
# others; the closing lines count.
set -uo pipefail
cd "$(dirname "$0")/.."
export CGO_ENABLED=0
scripts/need.sh node npm strace postgresql || exit 2
passed=0 failed=0 notrun=0 log=$(mktemp)
trap 'rm -f "$log"' EXIT

suite() { # name, command...
  local name=$1 start=$SECONDS
  shift
  echo "== $name"
  if "$@" >"$log" 2>&1; then
    passed=$((passed + 1))
    grep -E '^(ok|conformance |inspector|\?|--- FAIL|FAIL|panic|[a-zA-Z ]+( control)?[,:(]|.*(passed|NOT RUN))' "$log" | grep -vE '^=== |no test files' | cut -c1-600
  else
    failed=$((failed + 1))
    grep -E '^ *--- FAIL|^panic|^FAIL' "$log" | head -n 60 # what failed, before what it said
    grep -E -B3 -A25 '^ *--- FAIL|^panic|^FAIL|_test.go:[0-9]+: ' "$log" | grep -vE '^=== |^ *--- PASS' | head -n 300
    tail -n 20 "$log"
  fi
  notrun=$((notrun + $(grep -cE '_test\.go:[0-9]+: NOT RUN' "$log")))
  echo "== $name: $((SECONDS - start)) s"
}

suite "lint"            scripts/lint.sh
models='/model(/|$)|/internal/(source|modeldiff|modelserver|modelaccess|injection|realdb)(/|$)'
suite "unit"            go test -count=1 -v -timeout 15m $(go list ./... | grep -vE "/internal/durability|/persistence\$|$models")
suite "models"          go test -count=1 -v -timeout 12m $(go list ./... | grep -E "$models")
suite "scenarios"       go test -count=1 -v -timeout 10m ./persistence
suite "kills, cuts, histories" go test -count=1 -v -timeout 15m ./internal/durability
suite "control: no sync" go test -count=1 -v -tags weaken -run 'FindMissingSync' ./internal/durability
suite "control: blobs"  go test -count=1 -v -tags weaken -run 'FindWeakness' ./internal/store/blob
suite "conformance"     scripts/conformance.sh
suite "clients"         scripts/clients.sh
[ "$notrun" -eq 0 ] || echo "$notrun tests did NOT RUN, for the reasons above; those that need real material: make test-real REAL=DIR"
echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ]
