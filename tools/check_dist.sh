#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Runs what `make dist` made on a minimal Debian 12 with nothing installed and no network set up: the archive
# unpacked in two places, then the .deb. tools/check_dist.sh [MODEL.onnx [--shape NAME=AxB...]]; needs root and debootstrap.
set -euo pipefail
cd "$(dirname "$0")/.."
model=${1:-}
shapes=("${@:2}")
archive=$(ls -t dist/pelton-*-linux-x86_64.tar.gz | head -n1)
package=$(ls -t dist/pelton_*_amd64.deb | head -n1)
root=$(mktemp -d "${TMPDIR:-/tmp}/pelton-dist-XXXXXX")
leave() {
  umount "$root/proc" 2>/dev/null || true
  rm -rf --one-file-system "$root"
}
trap leave EXIT
. tools/minimal_debian.sh
minimal_debian "$root"
mount -t proc proc "$root/proc"

inside() { chroot "$root" /usr/bin/env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/tmp "$@"; }
try() {
  inside "$1" --version
  inside "$1" doctor
  if [ -n "$model" ]; then
    cp "$model" "$root/tmp/model.onnx"
    inside "$1" inspect /tmp/model.onnx > /dev/null
    inside "$1" compile /tmp/model.onnx -o /tmp/model.pelton "${shapes[@]}"
    inside "$1" bench /tmp/model.pelton --seconds 1
  fi
}
for place in srv/a "tmp/another place"; do
  mkdir -p "$root/$place"
  tar -xzf "$archive" -C "$root/$place" --strip-components=1
  echo "== archive in /$place"
  try "/$place/bin/pelton"
done
cp "$package" "$root/tmp/pelton.deb"
inside dpkg -i /tmp/pelton.deb
echo "== package"
try /usr/bin/pelton
echo "dist: archive and package run on a bare Debian 12"
