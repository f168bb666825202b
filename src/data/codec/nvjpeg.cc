// SPDX-License-Identifier: Apache-2.0
// The few functions in use are declared here by their published names and numbers, so that neither CUDA's
// headers nor its libraries are needed to build.
#include "data/codec/nvjpeg.h"

#include <dlfcn.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdlib>
#include <cstring>

namespace pelton::data {
namespace {

constexpr int kSuccess = 0;
constexpr int kDefaultBackend = 0, kGrey = 2, kRgb = 5;         // output formats Y and RGBI
constexpr unsigned kStrict = 1u << 2, kInterpolated = 1u << 5;  // refuse damage; chroma between its samples
constexpr int kToHost = 2;                                      // cudaMemcpyDeviceToHost
constexpr unsigned kNonBlocking = 1;                            // cudaStreamNonBlocking

constexpr int kSmallest = 16;  // side of a picture for the GPU

struct Image {
  unsigned char* channel[4];
  size_t pitch[4];
};

struct Api {
  int (*create)(int, void*, void*, unsigned, void**);
  int (*state_create)(void*, void**);
  int (*state_destroy)(void*);
  int (*info)(void*, const unsigned char*, size_t, int*, int*, int*, int*);
  int (*decode)(void*, void*, const unsigned char*, size_t, int, Image*, void*);
  int (*device_count)(int*);
  int (*allocate)(void**, size_t);
  int (*release)(void*);
  int (*allocate_host)(void**, size_t);
  int (*release_host)(void*);
  int (*copy)(void*, const void*, size_t, int, void*);
  int (*stream_create)(void**, unsigned);
  int (*stream_destroy)(void*);
  int (*stream_wait)(void*);
  void* handle = nullptr;
  std::string lack;
};

void* open_library(const char* file, std::string& lack) {
  const char* own = std::getenv("PELTON_CUDA_LIBS");
  for (const std::string& folder :
       {own ? cat(own, "/") : std::string(), std::string(), std::string("/usr/local/cuda/lib64/")})
    if (void* library = dlopen((folder + file).c_str(), RTLD_NOW | RTLD_LOCAL)) return library;
  if (lack.empty()) lack = cat(file, " cannot be opened");
  return nullptr;
}

const Api& api() {
  static const Api* const loaded = [] {
    auto* a = new Api{};
    void* jpeg = open_library("libnvjpeg.so.13", a->lack);
    void* cuda = open_library("libcudart.so.13", a->lack);
    if (!a->lack.empty()) return a;
    auto find = [&](void* library, const char* name, auto& into) {
      into = reinterpret_cast<std::remove_reference_t<decltype(into)>>(dlsym(library, name));
      if (!into && a->lack.empty()) a->lack = cat("the library lacks ", name);
    };
    find(jpeg, "nvjpegCreateEx", a->create);
    find(jpeg, "nvjpegJpegStateCreate", a->state_create);
    find(jpeg, "nvjpegJpegStateDestroy", a->state_destroy);
    find(jpeg, "nvjpegGetImageInfo", a->info);
    find(jpeg, "nvjpegDecode", a->decode);
    find(cuda, "cudaGetDeviceCount", a->device_count);
    find(cuda, "cudaMalloc", a->allocate);
    find(cuda, "cudaFree", a->release);
    find(cuda, "cudaMallocHost", a->allocate_host);
    find(cuda, "cudaFreeHost", a->release_host);
    find(cuda, "cudaMemcpyAsync", a->copy);
    find(cuda, "cudaStreamCreateWithFlags", a->stream_create);
    find(cuda, "cudaStreamDestroy", a->stream_destroy);
    find(cuda, "cudaStreamSynchronize", a->stream_wait);
    int devices = 0;
    if (a->lack.empty() && (a->device_count(&devices) != kSuccess || devices == 0))
      a->lack = "there is no NVIDIA GPU";
    if (!a->lack.empty()) return a;
    int code = a->create(kDefaultBackend, nullptr, nullptr, kStrict | kInterpolated, &a->handle);
    if (code != kSuccess)
      code = a->create(kDefaultBackend, nullptr, nullptr, kStrict, &a->handle);  // older libraries
    if (code != kSuccess) a->lack = cat("nvJPEG does not start (status ", code, ")");
    return a;
  }();
  return *loaded;
}

// Memory that only grows, on the GPU or pinned on the host; null where there is none left.
class Buffer {
 public:
  Buffer(int (*allocate)(void**, size_t), int (*release)(void*)) : allocate_(allocate), release_(release) {}
  ~Buffer() {
    if (at_) release_(at_);
  }
  Buffer(const Buffer&) = delete;
  void* need(size_t bytes) {
    if (bytes <= bytes_) return at_;
    if (at_) release_(at_);
    at_ = nullptr;
    bytes_ = 0;
    if (allocate_(&at_, bytes) != kSuccess) return at_ = nullptr;
    bytes_ = bytes;
    return at_;
  }

 private:
  int (*allocate_)(void**, size_t);
  int (*release_)(void*);
  void* at_ = nullptr;
  size_t bytes_ = 0;
};

// What each thread decodes with; not ready where the GPU gives no decoder.
struct Decoder {
  Decoder() : device(api().allocate, api().release), host(api().allocate_host, api().release_host) {
    ready = api().state_create(api().handle, &state) == kSuccess &&
            api().stream_create(&stream, kNonBlocking) == kSuccess;
  }
  ~Decoder() {
    if (state) api().state_destroy(state);
    if (stream) api().stream_destroy(stream);
  }
  bool ready = false;
  void* state = nullptr;
  void* stream = nullptr;
  Buffer device, host;
};

std::atomic<int64_t> decoded{0}, left{0};

}  // namespace

std::string nvjpeg_lack() {
  return api().lack;
}

NvjpegCounts nvjpeg_counts() {
  return {decoded, left};
}

std::optional<Tensor> nvjpeg_decode(Bytes bytes, const JpegInfo& info, Colour colour) {
  const Api& a = api();
  PELTON_CHECK(a.lack.empty(), a.lack);
  auto leave = [] {
    ++left;
    return std::nullopt;
  };
  // Ink and RGB codings have conversions of their own, which the CPU's decoder knows. Grey pictures whose
  // only component has other sampling factors than 1, and pictures smaller than a coded unit, come out wrong.
  const bool grey = info.components == 1 || colour == Colour::gray;
  const bool plain =
      info.components == 1 ? info.h[0] == 1 && info.v[0] == 1 : info.components == 3 && info.ycc;
  if (!plain || std::min(info.image.width, info.image.height) < kSmallest) return leave();
  int components = 0, sampling = 0;
  std::array<int, 4> widths{}, heights{};
  if (a.info(a.handle, bytes.data(), bytes.size(), &components, &sampling, widths.data(), heights.data()) !=
          kSuccess ||
      components != info.components || widths[0] != info.image.width || heights[0] != info.image.height)
    return leave();
  thread_local Decoder d;
  const auto channels = static_cast<size_t>(grey ? 1 : 3);
  const size_t row = static_cast<size_t>(widths[0]) * channels, size = row * static_cast<size_t>(heights[0]);
  void *pixels = d.ready ? d.device.need(size) : nullptr, *back = pixels ? d.host.need(size) : nullptr;
  if (!back) return leave();
  Image image{};
  image.channel[0] = static_cast<unsigned char*>(pixels);
  image.pitch[0] = row;
  if (a.decode(a.handle, d.state, bytes.data(), bytes.size(), grey ? kGrey : kRgb, &image, d.stream) !=
          kSuccess ||
      a.copy(back, pixels, size, kToHost, d.stream) != kSuccess || a.stream_wait(d.stream) != kSuccess)
    return leave();
  ++decoded;
  Tensor out(DType::u8, {heights[0], widths[0], static_cast<int64_t>(channels)});
  std::memcpy(out.mutable_data(), back, size);
  return out;
}

}  // namespace pelton::data
