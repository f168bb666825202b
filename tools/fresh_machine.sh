#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Proves the README on a machine with nothing installed: makes a minimal Debian 12 in a folder, clones HEAD into
# it, types the README's prerequisite line and its commands, and prints how long each took.
#   tools/fresh_machine.sh [--keep] [COMMAND...]     default: every `make ...` command of README.md
# Needs root and debootstrap. Package sources, certificates and pip settings are taken from this machine.
set -euo pipefail
cd "$(dirname "$0")/.."
keep=
if [ "${1:-}" = --keep ]; then
  keep=1
  shift
fi
commands=("$@")
if [ ${#commands[@]} = 0 ]; then
  mapfile -t commands < <(sed -n '/^```/,/^```/s/^\(make [a-z-]*\).*/\1/p' README.md)
fi
prerequisite=$(grep -o 'apt-get install -y git make' README.md | head -n1)

root=$(mktemp -d "${TMPDIR:-/tmp}/pelton-fresh-XXXXXX")
leave() {
  umount "$root/proc" "$root/dev" 2>/dev/null || true
  [ -n "$keep" ] && echo "kept: $root" || rm -rf --one-file-system "$root"
}
trap leave EXIT

. tools/minimal_debian.sh
minimal_debian "$root"
mount -t proc proc "$root/proc"
mount --bind /dev "$root/dev"

git clone -q --no-hardlinks . "$root/srv/pelton"

inside() {
  chroot "$root" /usr/bin/env -i PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/tmp LANG=C.UTF-8 \
    PIP_CERT=/etc/machine-certificates.crt SSL_CERT_FILE=/etc/machine-certificates.crt DEBIAN_FRONTEND=noninteractive \
    bash -c "cd /srv/pelton && $1"
}

report=
timed() {
  local start=$SECONDS
  echo "== $1"
  if inside "$2"; then
    report+=$(printf '%-45s ok      %5d s' "$1" $((SECONDS - start)))$'\n'
  else
    report+=$(printf '%-45s FAILED  %5d s' "$1" $((SECONDS - start)))$'\n'
    printf '%s' "$report"
    exit 1
  fi
}
timed "$prerequisite" "apt-get update -q && $prerequisite"
for command in "${commands[@]}"; do
  timed "$command" "$command"
done
printf '\n%s' "$report"
