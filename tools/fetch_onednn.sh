#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Puts oneDNN (library, headers, licence) into a prefix that CMake searches: tools/fetch_onednn.sh [PREFIX]
# Default PREFIX: .deps at the top of the source tree. Needs python3 with pip, patchelf and a C compiler.
#
# The published library was built with a proprietary compiler and asks for its run-time libraries (libimf,
# libintlc), of which it uses two memory functions and plain libm functions. Those two are compiled here into
# libpelton_dnnl_support.so, so nothing proprietary is downloaded or shipped.
set -eu
top=$(cd "$(dirname "$0")/.." && pwd)
prefix=${1:-$top/.deps}
stamp=$prefix/onednn.stamp
key=$(cat "$0" "$top/tools/onednn_requirements.txt" | sha256sum | cut -d' ' -f1)
if [ -f "$stamp" ] && [ "$(cat "$stamp")" = "$key" ]; then
  exit 0
fi

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
echo "+ python3 -m pip download --no-deps --require-hashes -r tools/onednn_requirements.txt"
python3 -m pip download -q --disable-pip-version-check --no-deps --only-binary :all: --require-hashes \
  -d "$work" -r "$top/tools/onednn_requirements.txt"
for wheel in "$work"/*.whl; do
  python3 -m zipfile -e "$wheel" "$work/tree"
done

mkdir -p "$prefix/lib" "$prefix/include" "$prefix/share/licenses/onednn"
cp -r "$work"/tree/onednn_devel*/data/include/. "$prefix/include/"
cp "$work"/tree/onednn_cpu*/data/share/doc/onednn/LICENSE \
   "$work"/tree/onednn_cpu*/data/share/doc/onednn/THIRD-PARTY-PROGRAMS "$prefix/share/licenses/onednn/"

cat > "$work/support.c" <<'C'
#include <string.h>
void* _intel_fast_memcpy(void* to, const void* from, size_t bytes) { return memcpy(to, from, bytes); }
void* _intel_fast_memset(void* to, int value, size_t bytes) { return memset(to, value, bytes); }
C
# -fno-builtin keeps each function a call of the C library, never of itself.
"${CC:-cc}" -O2 -fPIC -fno-builtin -shared -Wl,-soname,libpelton_dnnl_support.so \
  -o "$prefix/lib/libpelton_dnnl_support.so" "$work/support.c"

library=$work/libdnnl.so.3
cp "$work"/tree/onednn_cpu*/data/lib/libdnnl.so.3 "$library"
# One change a call: patchelf 0.14 mixes the strings up when given several.
patchelf --replace-needed libimf.so libm.so.6 "$library"
patchelf --replace-needed libintlc.so.5 libpelton_dnnl_support.so "$library"
patchelf --set-rpath '$ORIGIN' "$library"
chmod 755 "$library"
mv "$library" "$prefix/lib/libdnnl.so.3"
ln -sf libdnnl.so.3 "$prefix/lib/libdnnl.so"
echo "$key" > "$stamp"
