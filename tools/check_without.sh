#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Builds that lack a library give right answers: tools/check_without.sh [onednn] [hwy] (both by default).
# Each is built in build/without-LIBRARY and runs tests/cli/executed_test.py, which compares with onnx.reference.
set -e
cd "$(dirname "$0")/.."
python=.venv/bin/python
[ -x "$python" ] || python=python3
for library in ${*:-onednn hwy}; do
  build=build/without-$library
  option=$(echo "$library" | tr a-z A-Z)
  echo "== without $library"
  cmake -S . -B "$build" -G Ninja -DCMAKE_BUILD_TYPE=Release "-DPELTON_$option=OFF" >/dev/null
  cmake --build "$build" --target pelton
  "$build/pelton" doctor | grep -i "$library" || true
  PELTON_BINARY_DIR=$PWD/$build "$python" -m pytest -q -p no:cacheprovider tests/cli/executed_test.py
done
