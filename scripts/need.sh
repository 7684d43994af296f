#!/usr/bin/env bash
# Makes sure that the programs named as arguments are there, and installs missing ones with apt where that is
# possible. It says what it does, and fails with advice where it cannot.
set -euo pipefail
declare -A package=([strace]=strace [node]=nodejs [npm]=npm [git]=git)
missing=()
for tool in "$@"; do
  if [ "$tool" = postgresql ]; then # its programs are not in the path of Debian
    command -v initdb >/dev/null || ls /usr/lib/postgresql/*/bin/initdb >/dev/null 2>&1 || missing+=(postgresql)
    continue
  fi
  command -v "$tool" >/dev/null || missing+=("${package[$tool]:-$tool}")
done
[ ${#missing[@]} -eq 0 ] && exit 0
if command -v apt-get >/dev/null && [ "$(id -u)" = 0 ]; then
  echo "installing ${missing[*]}" >&2
  apt-get update -qq >&2
  DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${missing[@]}" >&2
else
  echo "the tests need ${missing[*]}: install them and run again" >&2
  exit 2
fi
