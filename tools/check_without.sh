#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Builds that lack an optional library work: tools/check_without.sh [onednn] [hwy] [boost] [grpc] [codecs] (all by default).
# Each is built in build/without-LIBRARY, has to say in `doctor` that the library is off, and runs tests/cli/executed_test.py,
# which compares with onnx.reference. CUDA is left out by every machine that has none (fresh_machine.sh).
set -e
cd "$(dirname "$0")/.."
python=.venv/bin/python
[ -x "$python" ] || python=python3
for part in ${*:-onednn hwy boost grpc codecs}; do
  build=build/without-$part
  libraries=$part
  case $part in
    onednn) named=oneDNN ;;
    hwy) named=Highway ;;
    boost) named=Boost ;;
    grpc) named=gRPC ;;
    codecs)
      libraries="jpeg;png;webp;tiff;sndfile;curl;zstd"
      named="libjpeg libpng libwebp libtiff libsndfile libcurl zstd"
      ;;
  esac
  echo "== without $part"
  cmake -S . -B "$build" -G Ninja -DCMAKE_BUILD_TYPE=Release "-DPELTON_WITHOUT=$libraries" | grep "are off"
  cmake --build "$build" --target pelton
  for name in $named; do
    "$build/pelton" doctor | grep "^$name  *off"
  done
  PELTON_BINARY_DIR=$PWD/$build "$python" -m pytest -q -p no:cacheprovider tests/cli/executed_test.py
  [ "$part" = boost ] || continue
  if said=$("$build/pelton" serve --model-repository . 2>&1); then
    echo "serve runs without Boost"
    exit 1
  fi
  echo "$said" | grep "this build has no server"
done
