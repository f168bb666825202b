#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Proves the README on a machine with nothing installed: makes a minimal Debian 12 in a folder, clones HEAD into
# it, types the README's prerequisite line and its commands, and prints how long each took.
#   tools/fresh_machine.sh [--keep] [--bind FOLDER:PLACE]... [COMMAND...]     default: every `make ...` command of README.md
# --bind shows a folder of this machine inside, such as one for ccache at /tmp/.cache/ccache: what was compiled before is
# not compiled again, so times of such a run say nothing, and the report names the folder.
# Needs root and debootstrap. Package sources, certificates and pip settings are taken from this machine.
set -euo pipefail
cd "$(dirname "$0")/.."
keep= binds=()
while [[ ${1:-} = --* ]]; do
  case $1 in
    --keep) keep=1 ;;
    --bind) binds+=("$2"); shift ;;
    *) echo "usage: tools/fresh_machine.sh [--keep] [--bind FOLDER:PLACE]... [COMMAND...]" >&2; exit 2 ;;
  esac
  shift
done
commands=("$@")
if [ ${#commands[@]} = 0 ]; then
  mapfile -t commands < <(sed -n '/^```/,/^```/s/^\(make [a-z-]*\).*/\1/p' README.md)
fi
prerequisite=$(grep -o 'apt-get install -y git make' README.md | head -n1)

root=$(mktemp -d "${TMPDIR:-/tmp}/pelton-fresh-XXXXXX")
leave() {
  local bind
  for bind in "${binds[@]}"; do umount "$root${bind#*:}" 2>/dev/null || true; done
  umount "$root/proc" "$root/dev" 2>/dev/null || true
  if grep -q " $root/" /proc/self/mounts; then  # what is bound there is not ours to remove
    echo "still mounted below $root, which is left"
    return
  fi
  [ -n "$keep" ] && echo "kept: $root" || rm -rf --one-file-system "$root"
}
trap leave EXIT

. tools/minimal_debian.sh
minimal_debian "$root"
mount -t proc proc "$root/proc"
mount --bind /dev "$root/dev"
report=
for bind in "${binds[@]}"; do
  mkdir -p "$root${bind#*:}"
  mount --bind "${bind%%:*}" "$root${bind#*:}"
  report+="shared with this machine: ${bind%%:*} as ${bind#*:}"$'\n'
done

git clone -q --no-hardlinks . "$root/srv/pelton"

inside() {
  chroot "$root" /usr/bin/env -i PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/tmp LANG=C.UTF-8 \
    PIP_CERT=/etc/machine-certificates.crt SSL_CERT_FILE=/etc/machine-certificates.crt DEBIAN_FRONTEND=noninteractive \
    bash -c "cd /srv/pelton && $1"
}

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
