// SPDX-License-Identifier: Apache-2.0
#include "backend/cuda/pictures/nvjpeg.h"

#include "backend/cuda/library_file.h"
#include "base/error.h"

namespace pelton::backend::cuda {
namespace {

struct Loaded {
  NvjpegTable table{};
  std::string error;
};

const Loaded& load() {
  static const auto* const loaded = [] {
    auto* out = new Loaded;
    LibraryFile library("nvJPEG", cat("libnvjpeg.so.", CUDART_VERSION / 1000));
    NvjpegTable& t = out->table;
    library.get(t.create, "nvjpegCreateEx");
    library.get(t.destroy, "nvjpegDestroy");
    library.get(t.hardware, "nvjpegGetHardwareDecoderInfo");
    library.get(t.state_create, "nvjpegJpegStateCreate");
    library.get(t.state_destroy, "nvjpegJpegStateDestroy");
    library.get(t.stream_create, "nvjpegJpegStreamCreate");
    library.get(t.stream_destroy, "nvjpegJpegStreamDestroy");
    library.get(t.stream_parse_header, "nvjpegJpegStreamParseHeader");
    library.get(t.stream_size, "nvjpegJpegStreamGetFrameDimensions");
    library.get(t.stream_components, "nvjpegJpegStreamGetComponentsNum");
    library.get(t.batch_supported, "nvjpegDecodeBatchedSupported");
    library.get(t.batch_initialize, "nvjpegDecodeBatchedInitialize");
    library.get(t.batch_decode, "nvjpegDecodeBatched");
    out->error = library.error();
    return out;
  }();
  return *loaded;
}

}  // namespace

const NvjpegTable& nvjpeg() {
  if (const std::string& error = load().error; !error.empty())
    fail(ErrorCode::no_device, error, "decode on the GPU",
         "install nvJPEG, or name its folder in the environment variable PELTON_CUDA_LIBS");
  return load().table;
}

}  // namespace pelton::backend::cuda
