# SPDX-License-Identifier: Apache-2.0
# Sourced: minimal_debian FOLDER makes a minimal Debian 12 there, with this machine's package sources, name
# service, certificates (as /etc/machine-certificates.crt) and pip settings.
minimal_debian() {
  local root=$1 file mirror sources=()
  for file in /etc/apt/sources.list /etc/apt/sources.list.d/*.sources; do
    [ -f "$file" ] && sources+=("$file")
  done
  mirror=$(sed -n 's/^URIs: *//p; s/^deb [^h]*\(http[^ ]*\).*/\1/p' "${sources[@]}" | head -n1)
  echo "== minimal Debian 12"
  debootstrap --variant=minbase bookworm "$root" ${mirror:+"$mirror"} > "$root.log" 2>&1 || { tail -n 20 "$root.log"; return 1; }
  rm -f "$root.log" "$root/etc/apt/sources.list"
  for file in "${sources[@]}" /etc/resolv.conf /etc/pip.conf; do
    if [ -f "$file" ]; then
      mkdir -p "$root$(dirname "$file")"
      cp -L "$file" "$root$file"
    fi
  done
  echo 'Acquire::Check-Valid-Until "false";' > "$root/etc/apt/apt.conf.d/99fresh"  # the sources may be a snapshot
  if [ -f /etc/ssl/certs/ca-certificates.crt ]; then
    cp /etc/ssl/certs/ca-certificates.crt "$root/etc/machine-certificates.crt"
  fi
  chmod 755 "$root"  # mktemp made it private, and apt drops its rights
}
