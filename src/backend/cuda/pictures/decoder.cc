// SPDX-License-Identifier: Apache-2.0
// device::PictureDecoder through nvJPEG: on the GPU's JPEG engines where it has some, else by its kernels. A
// list of files is decoded at once into memory of the decoder, and one kernel resamples all of them into the
// batch. Which files those can be is asked of the library before, by any threads.
#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>

#include "backend/cuda/handles.h"
#include "backend/cuda/memory.h"
#include "backend/cuda/own/picture_sample.h"
#include "backend/cuda/pictures/nvjpeg.h"
#include "backend/cuda/pictures/pictures.h"

namespace pelton::backend::cuda {
namespace {

constexpr size_t kMostAtOnce = 128;                      // pictures of a list; longer ones gain nothing
constexpr int64_t kMostPixelBytes = int64_t{512} << 20;  // of a list; a larger picture is one of its own
constexpr size_t kAlignment = 256;

size_t aligned(size_t bytes) {
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

// PELTON_CUDA_JPEG_DIRECT=1: pictures that come as they are, are decoded straight into the batch, and nvJPEG
// neither waits for the next list nor searches the files for damage, which whoever made the jobs has done.
// Off by default: it has not run on a GPU.
bool direct() {
  static const bool on = [] {
    const char* value = std::getenv("PELTON_CUDA_JPEG_DIRECT");
    return value && std::string_view(value) == "1";
  }();
  return on;
}

// nvJPEG on one GPU. Stays until the process ends: states of other threads hang on it.
struct Library {
  NvjpegHandle handle = nullptr;
  bool engines = false;
  // For headers, one for each thread that asks at a time.
  std::mutex mutex;
  std::vector<NvjpegStream> spare;
};
Library& library_of(int ordinal) {
  static auto* const open = new std::map<int, Library>;
  static std::mutex mutex;
  std::lock_guard lock(mutex);
  Library& l = (*open)[ordinal];
  if (l.handle) return l;
  const NvjpegTable& api = nvjpeg();
  const unsigned flags = kNvjpegInterpolate | (direct() ? kNvjpegNoPipeline : kNvjpegStrict);
  unsigned engines = 0, cores = 0;
  int status = api.create(NvjpegBackend::hardware, nullptr, nullptr, flags, &l.handle);
  if (status == 0 && api.hardware(l.handle, &engines, &cores) == 0 && engines > 0) {
    l.engines = true;
    return l;
  }
  if (status == 0) api.destroy(l.handle);
  l.handle = nullptr;
  status = api.create(NvjpegBackend::gpu_hybrid, nullptr, nullptr, flags, &l.handle);
  if (status != 0)
    fail(ErrorCode::no_device, cat("nvJPEG does not start on GPU ", ordinal, " (status ", status, ")"),
         "decode on the GPU", "leave device = \"gpu\" out");
  return l;
}

// Memory that only grows; what it held is lost then. Null where there is none left.
template <cudaError_t (*Allocate)(void**, size_t), cudaError_t (*Free)(void*)>
class Growing {
 public:
  Growing() = default;
  Growing(const Growing&) = delete;
  ~Growing() { (void)Free(at_); }
  uint8_t* need(size_t bytes) {
    if (bytes <= bytes_) return static_cast<uint8_t*>(at_);
    (void)Free(std::exchange(at_, nullptr));
    bytes_ = 0;
    if (Allocate(&at_, bytes) != cudaSuccess) {
      (void)cudaGetLastError();
      return static_cast<uint8_t*>(at_ = nullptr);
    }
    bytes_ = bytes;
    return static_cast<uint8_t*>(at_);
  }

 private:
  void* at_ = nullptr;
  size_t bytes_ = 0;
};
cudaError_t allocate_pixels(void** at, size_t bytes) {
  return cudaMalloc(at, bytes);
}
cudaError_t allocate_pinned(void** at, size_t bytes) {
  return cudaHostAlloc(at, bytes, cudaHostAllocDefault);
}
using Pixels = Growing<allocate_pixels, cudaFree>;
using Pinned = Growing<allocate_pinned, cudaFreeHost>;

SampleForm form_of(const device::PictureForm& f) {
  SampleForm out{};
  out.width = f.width;
  out.height = f.height;
  out.channels = f.channels;
  out.type = f.dtype == DType::f32   ? SampleType::f32
             : f.dtype == DType::f16 ? SampleType::f16
                                     : SampleType::u8;
  out.channels_first = f.channels_first;
  std::copy_n(f.mean.begin(), 3, out.mean);
  std::copy_n(f.scale.begin(), 3, out.scale);
  return out;
}

// Whether the results along an axis are the pixels along it.
bool plain(const device::PictureTaps& t, int size) {
  if (t.taps != 1 || std::ssize(t.first) != size) return false;
  for (int i = 0; i < size; ++i)
    if (t.first[static_cast<size_t>(i)] != i || t.weights[static_cast<size_t>(i)] != 1) return false;
  return true;
}

// Whether the decoded picture is the output, byte by byte.
bool plain(const device::PictureJob& job, const device::PictureForm& form) {
  return form.dtype == DType::u8 && !form.channels_first && job.width == form.width &&
         job.height == form.height && job.left == 0 && job.top == 0 && !job.swap && !job.recolour &&
         plain(job.x, job.width) && plain(job.y, job.height);
}

class NvjpegDecoder : public device::PictureDecoder {
 public:
  explicit NvjpegDecoder(int ordinal)
      : api_(nvjpeg()), library_(library_of(ordinal)), stream_(make_stream()) {
    PELTON_CUDA(cudaEventCreateWithFlags(done_.out(), cudaEventDisableTiming | cudaEventBlockingSync));
    if (api_.state_create(library_.handle, &state_) != 0)
      fail(ErrorCode::out_of_memory, "no memory for a decoder of nvJPEG", "decode on the GPU");
  }
  ~NvjpegDecoder() override {
    (void)cudaStreamSynchronize(stream_.get());
    api_.state_destroy(state_);
  }
  NvjpegDecoder(const NvjpegDecoder&) = delete;

  void run(std::span<const device::PictureJob> jobs, const device::PictureForm& form,
           std::span<uint8_t> taken) override {
    std::vector<size_t> list;
    int64_t bytes = 0;
    for (size_t i = 0; i < jobs.size(); ++i) {
      taken[i] = 0;
      const int64_t size = int64_t{jobs[i].width} * jobs[i].height * form.channels;
      if (!list.empty() && (list.size() == kMostAtOnce || bytes + size > kMostPixelBytes)) {
        decode(jobs, list, form, taken);
        list.clear();
        bytes = 0;
      }
      list.push_back(i);
      bytes += size;
    }
    if (!list.empty()) decode(jobs, list, form, taken);
  }

 private:
  // These jobs at once; one by one when the list fails, to find those that do.
  void decode(std::span<const device::PictureJob> jobs, const std::vector<size_t>& list,
              const device::PictureForm& form, std::span<uint8_t> taken) {
    if (decode_list(jobs, list, form)) {
      for (const size_t i : list) taken[i] = 1;
    } else if (list.size() > 1) {
      for (const size_t i : list) taken[i] = decode_list(jobs, {i}, form);
    }
  }

  // Whether all went well; nothing is under way when it returns.
  bool decode_list(std::span<const device::PictureJob> jobs, const std::vector<size_t>& list,
                   const device::PictureForm& form) {
    size_t pixel_bytes = 0;
    std::vector<size_t> to_sample, places;  // in the decoder's memory
    std::vector<const unsigned char*> files;
    std::vector<size_t> sizes;
    std::vector<NvjpegImage> images;
    for (const size_t i : list) {
      const device::PictureJob& job = jobs[i];
      files.push_back(job.file.data());
      sizes.push_back(job.file.size());
      NvjpegImage image{};
      image.pitch[0] = static_cast<size_t>(job.width * form.channels);
      if (direct() && plain(job, form)) {
        image.channel[0] = static_cast<uint8_t*>(job.out);
      } else {
        to_sample.push_back(i);
        places.push_back(pixel_bytes);
        pixel_bytes += aligned(image.pitch[0] * static_cast<size_t>(job.height));
      }
      images.push_back(image);
    }
    uint8_t* const pixels = pixels_.need(pixel_bytes);
    if (!to_sample.empty() && (!pixels || !stage_tables(jobs, to_sample, pixels, places))) return false;
    for (size_t k = 0, n = 0; k < list.size(); ++k)
      if (!images[k].channel[0]) images[k].channel[0] = pixels + places[n++];
    const auto count = static_cast<int>(list.size());
    const int format = form.channels == 1 ? kNvjpegGrey : kNvjpegRgb;
    if (count != initialized_ || format != format_) {
      initialized_ = 0;
      if (api_.batch_initialize(library_.handle, state_, count, 1, format) != 0) return false;
      initialized_ = count;
      format_ = format;
    }
    if (api_.batch_decode(library_.handle, state_, files.data(), sizes.data(), images.data(),
                          stream_.get()) != 0) {
      initialized_ = 0;  // a failed list needs a new start
      wait();
      return false;
    }
    if (!to_sample.empty()) {
      PELTON_CUDA(cudaMemcpyAsync(on_device_, on_host_, table_bytes_, cudaMemcpyHostToDevice, stream_.get()));
      PELTON_CUDA(sample_pictures(reinterpret_cast<const SamplePicture*>(on_device_),
                                  static_cast<int>(to_sample.size()), form_of(form), stream_.get()));
    }
    wait();
    return true;
  }

  // Lays out what the kernel reads, in pinned memory and by addresses in the GPU's: the pictures, then their
  // tables of taps.
  bool stage_tables(std::span<const device::PictureJob> jobs, const std::vector<size_t>& list,
                    uint8_t* pixels, const std::vector<size_t>& places) {
    size_t bytes = aligned(list.size() * sizeof(SamplePicture));
    for (const size_t i : list)
      for (const device::PictureTaps* t : {&jobs[i].x, &jobs[i].y})
        bytes += 4 * (t->first.size() + t->weights.size());
    uint8_t* const host = on_host_ = tables_.need(bytes);
    on_device_ = device_tables_.need(bytes);
    if (!host || !on_device_) return false;
    table_bytes_ = bytes;
    size_t at = aligned(list.size() * sizeof(SamplePicture));
    auto place = [&](const auto& values) {
      const size_t begin = at, size = values.size() * sizeof(values[0]);
      std::memcpy(host + begin, values.data(), size);
      at += size;
      return on_device_ + begin;
    };
    auto taps = [&](const device::PictureTaps& t) {
      SampleTaps out{};
      out.first = reinterpret_cast<const int32_t*>(place(t.first));
      out.weights = reinterpret_cast<const float*>(place(t.weights));
      out.n = static_cast<int>(t.first.size());
      out.taps = t.taps;
      return out;
    };
    for (size_t k = 0; k < list.size(); ++k) {
      const device::PictureJob& job = jobs[list[k]];
      SamplePicture p{};
      p.pixels = pixels + places[k];
      p.width = job.width;
      p.height = job.height;
      p.x = taps(job.x);
      p.y = taps(job.y);
      p.left = job.left;
      p.top = job.top;
      p.swap = job.swap;
      p.recolour = job.recolour;
      std::ranges::copy(job.fill, p.fill);
      std::ranges::copy(job.matrix, p.matrix);
      p.out = job.out;
      std::memcpy(host + k * sizeof(p), &p, sizeof(p));
    }
    return true;
  }

  void wait() {
    PELTON_CUDA(cudaEventRecord(done_.get(), stream_.get()));
    PELTON_CUDA(cudaEventSynchronize(done_.get()));
  }

  const NvjpegTable& api_;
  const Library& library_;
  StreamHandle stream_;
  EventHandle done_;
  NvjpegState state_ = nullptr;
  int initialized_ = 0, format_ = 0;
  Pixels pixels_, device_tables_;
  Pinned tables_;
  uint8_t *on_host_ = nullptr, *on_device_ = nullptr;  // the tables of a list
  size_t table_bytes_ = 0;
};

}  // namespace

std::unique_ptr<device::PictureDecoder> make_picture_decoder(int ordinal) {
  return std::make_unique<NvjpegDecoder>(ordinal);
}

// What the library sees in the header must be what memory is laid out for.
bool decodes_picture(int ordinal, const device::PictureJob& job, int channels) {
  const NvjpegTable& api = nvjpeg();
  Library& library = library_of(ordinal);
  NvjpegStream header = nullptr;
  {
    std::lock_guard lock(library.mutex);
    if (!library.spare.empty()) {
      header = library.spare.back();
      library.spare.pop_back();
    }
  }
  if (!header && api.stream_create(library.handle, &header) != 0) return false;
  int unsupported = 1;
  unsigned width = 0, height = 0, components = 0;
  const bool fits = api.stream_parse_header(library.handle, job.file.data(), job.file.size(), header) == 0 &&
                    api.stream_size(header, &width, &height) == 0 && static_cast<int>(width) == job.width &&
                    static_cast<int>(height) == job.height &&
                    api.stream_components(header, &components) == 0 && (channels == 1 || components == 3) &&
                    api.batch_supported(library.handle, header, &unsupported) == 0 && unsupported == 0;
  std::lock_guard lock(library.mutex);
  library.spare.push_back(header);
  return fits;
}

}  // namespace pelton::backend::cuda
