#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Copies what `make test-gpu` needs beside a compiler and the CUDA toolkit into .carry/, for a GPU machine that has
# neither these packages nor a network: header-only libraries and oneTBB. Copy the repository with .carry/ there.
set -eu
cd "$(dirname "$0")/.."
mkdir -p .carry/include .carry/lib
for name in CLI doctest fmt nlohmann spdlog toml++ tbb oneapi/tbb oneapi/tbb.h hwy xxhash.h xxh3.h; do
  from=
  for root in ${PELTON_DEPS_DIR:-.deps}/include /usr/include; do
    [ -e "$root/$name" ] && from=$root/$name && break
  done
  [ -n "$from" ] || { echo "not found here: $name" >&2; continue; }
  mkdir -p ".carry/include/$(dirname "$name")"
  rm -rf ".carry/include/$name"
  cp -rL "$from" ".carry/include/$name"
done
tbb=$(ldconfig -p | awk '/libtbb\.so\./ { print $NF; exit }')
cp -L "$tbb" .carry/lib/libtbb.so.12
ln -sf libtbb.so.12 .carry/lib/libtbb.so
du -sh .carry
