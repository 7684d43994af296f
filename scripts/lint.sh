#!/usr/bin/env bash
# Formatting, vet and staticcheck. staticcheck is pinned with its sums in tools/go.mod.
set -euo pipefail
cd "$(dirname "$0")/.."
unformatted=$(gofmt -l $(git ls-files '*.go'))
[ -z "$unformatted" ] || { echo "gofmt would change: $unformatted" >&2; exit 1; }
go vet ./...
go tool -modfile=tools/go.mod staticcheck ./...
