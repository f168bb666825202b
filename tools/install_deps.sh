#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Installs what building and testing needs: tools/install_deps.sh SET...
#   build   compilers, CMake and libraries from Debian; oneDNN into .deps
#   test    the test framework; Python packages into .venv
#   demo    Python packages with the demo's models and its peer, into .venv
#   ci      formatter, clang for sanitizers and fuzzing
# Commands are printed before they run. With PELTON_NO_INSTALL=1 nothing is installed: what is missing is
# listed and the status is 1.
set -eu
cd "$(dirname "$0")/.."
[ $# -gt 0 ] || { echo "usage: tools/install_deps.sh build|test|demo|ci ..." >&2; exit 2; }
no_install=${PELTON_NO_INSTALL:-}
missing_report=

run() {
  echo "+ $*"
  "$@"
}

# --- Debian packages of the wanted sets
packages=
for set_name in "$@"; do
  packages="$packages $(awk -v s="$set_name" '!/^#/ { for (i = 2; i <= NF; i++) if ($i == s) print $1 }' \
    tools/debian_packages.txt | tr '\n' ' ')"
done
missing=
for package in $packages; do
  dpkg-query -W -f '${Status}' "$package" 2>/dev/null | grep -q '^install ok installed' || missing="$missing $package"
done
if [ -n "$missing" ]; then
  if [ -n "$no_install" ]; then
    missing_report="$missing_report  Debian packages:$missing
"
  else
    as_root=
    if [ "$(id -u)" != 0 ]; then
      command -v sudo >/dev/null || { echo "pelton: run as root: apt-get install -y --no-install-recommends$missing" >&2; exit 1; }
      as_root=sudo
    fi
    export DEBIAN_FRONTEND=noninteractive
    run $as_root apt-get update -qq
    echo "+ $as_root apt-get install -y --no-install-recommends$missing"
    log=$(mktemp)
    $as_root apt-get install -y -qq --no-install-recommends $missing > "$log" 2>&1 || { tail -n 20 "$log" >&2; exit 1; }
    rm -f "$log"
  fi
fi

# --- Python packages: the requirement files of the wanted sets, in one virtual environment
python=.venv/bin/python
for set_name in "$@"; do
  requirements=tools/${set_name}_requirements.txt
  [ -f "$requirements" ] || continue
  stamp=.venv/$set_name.stamp
  if [ -f "$stamp" ] && cmp -s "$requirements" "$stamp"; then
    continue
  fi
  if [ -n "$no_install" ]; then
    missing_report="$missing_report  Python packages of $requirements in .venv
"
    continue
  fi
  [ -x "$python" ] || run python3 -m venv .venv
  run "$python" -m pip install -q --disable-pip-version-check -r "$requirements"
  cp "$requirements" "$stamp"
done

# --- oneDNN on oneTBB, which no Debian package gives
case " $* " in *" build "*)
  if [ -n "$no_install" ]; then
    [ -e .deps/lib/libdnnl.so ] || missing_report="$missing_report  oneDNN (tools/fetch_onednn.sh)
"
  else
    tools/fetch_onednn.sh
  fi
esac

if [ -n "$missing_report" ]; then
  printf 'pelton: missing, and PELTON_NO_INSTALL is set:\n%s' "$missing_report" >&2
  exit 1
fi
