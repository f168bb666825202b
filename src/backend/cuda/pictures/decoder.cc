// SPDX-License-Identifier: Apache-2.0
// device::PictureDecoder through nvJPEG: on the GPU's JPEG engines where it has some, else by its kernels. A
// list of files is decoded at once into memory of the decoder (or where the pixels are to stay), and one
// kernel resamples all of them, and pictures that come as pixels, into the batch. Which files those can be is
// asked of the library before, by any threads.
#include <algorithm>
#include <map>
#include <mutex>
#include <optional>

#include "backend/cuda/aligned.h"
#include "backend/cuda/handles.h"
#include "backend/cuda/memory.h"
#include "backend/cuda/pictures/nvjpeg.h"
#include "backend/cuda/pictures/pictures.h"
#include "backend/cuda/pictures/sampler.h"

namespace pelton::backend::cuda {
namespace {

constexpr size_t kMostAtOnce = 128;                      // pictures of a list; longer ones gain nothing
constexpr int64_t kMostPixelBytes = int64_t{512} << 20;  // of a list; a larger picture is one of its own

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
  const unsigned flags = kNvjpegInterpolate | kNvjpegStrict;
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

// The files of a list, decoded at once.
class NvjpegFiles {
 public:
  explicit NvjpegFiles(int ordinal) : api_(nvjpeg()), library_(library_of(ordinal)) {
    if (api_.state_create(library_.handle, &state_) != 0)
      fail(ErrorCode::out_of_memory, "no memory for a decoder of nvJPEG", "decode on the GPU");
  }
  ~NvjpegFiles() { api_.state_destroy(state_); }
  NvjpegFiles(const NvjpegFiles&) = delete;

  void clear() {
    files_.clear();
    sizes_.clear();
    images_.clear();
  }
  bool empty() const { return files_.empty(); }
  void add(std::span<const uint8_t> file, uint8_t* to, size_t pitch) {
    files_.push_back(file.data());
    sizes_.push_back(file.size());
    images_.emplace_back().channel[0] = to;
    images_.back().pitch[0] = pitch;
  }
  // False where one of them cannot be decoded, or there is no memory for it.
  bool decode(int channels, cudaStream_t stream) {
    const auto count = static_cast<int>(files_.size());
    const int format = channels == 1 ? kNvjpegGrey : kNvjpegRgb;
    if (count != initialized_ || format != format_) {
      initialized_ = 0;
      if (api_.batch_initialize(library_.handle, state_, count, 1, format) != 0) return false;
      initialized_ = count;
      format_ = format;
    }
    if (api_.batch_decode(library_.handle, state_, files_.data(), sizes_.data(), images_.data(), stream) == 0)
      return true;
    initialized_ = 0;  // a failed list needs a new start
    return false;
  }

 private:
  const NvjpegTable& api_;
  const Library& library_;
  NvjpegState state_ = nullptr;
  int initialized_ = 0, format_ = 0;
  std::vector<const unsigned char*> files_;
  std::vector<size_t> sizes_;
  std::vector<NvjpegImage> images_;
};

class Decoder : public device::PictureDecoder {
 public:
  Decoder(int ordinal, bool files) : stream_(make_stream()) {
    PELTON_CUDA(cudaEventCreateWithFlags(done_.out(), cudaEventDisableTiming | cudaEventBlockingSync));
    if (files) files_.emplace(ordinal);
  }
  ~Decoder() override { (void)cudaStreamSynchronize(stream_.get()); }
  Decoder(const Decoder&) = delete;

  void run(std::span<const device::PictureJob> jobs, const device::PictureForm& form,
           std::span<uint8_t> taken) override {
    std::vector<size_t> list;
    int64_t bytes = 0;
    for (size_t i = 0; i < jobs.size(); ++i) {
      taken[i] = 0;
      const int64_t size = jobs[i].pixels_there ? 0 : int64_t{jobs[i].width} * jobs[i].height * form.channels;
      if (!list.empty() && (list.size() == kMostAtOnce || bytes + size > kMostPixelBytes)) {
        run_list(jobs, list, form, taken);
        list.clear();
        bytes = 0;
      }
      list.push_back(i);
      bytes += size;
    }
    if (!list.empty()) run_list(jobs, list, form, taken);
  }

 private:
  // These jobs at once; one by one when the list fails, to find those that do.
  void run_list(std::span<const device::PictureJob> jobs, const std::vector<size_t>& list,
                const device::PictureForm& form, std::span<uint8_t> taken) {
    if (run_at_once(jobs, list, form)) {
      for (const size_t i : list) taken[i] = 1;
    } else if (list.size() > 1) {
      for (const size_t i : list) taken[i] = run_at_once(jobs, {i}, form);
    }
  }

  // Whether all went well; nothing is under way when it returns.
  bool run_at_once(std::span<const device::PictureJob> jobs, const std::vector<size_t>& list,
                   const device::PictureForm& form) {
    auto pitch = [&](const device::PictureJob& job) {
      return static_cast<size_t>(job.width * form.channels);
    };
    auto size = [&](const device::PictureJob& job) { return pitch(job) * static_cast<size_t>(job.height); };
    size_t needed = 0;
    for (const size_t i : list)
      if (const device::PictureJob& job = jobs[i]; !job.keep && !job.pixels_there)
        needed += aligned(size(job));
    uint8_t* room = pixels_.need(needed);
    if (needed > 0 && !room) return false;
    std::vector<const uint8_t*> pixels;
    std::vector<std::pair<uint8_t*, const device::PictureJob*>> uploads;
    if (files_) files_->clear();
    for (const size_t i : list) {
      const device::PictureJob& job = jobs[i];
      if (job.pixels_there) {
        pixels.push_back(job.pixels);
        continue;
      }
      uint8_t* const to = job.keep ? job.keep : std::exchange(room, room + aligned(size(job)));
      pixels.push_back(to);
      if (job.file.empty())
        uploads.emplace_back(to, &job);
      else
        files_->add(job.file, to, pitch(job));
    }
    if (!sampler_.stage(jobs, list, pixels)) return false;
    for (const auto& [to, job] : uploads)
      PELTON_CUDA(cudaMemcpyAsync(to, job->pixels, size(*job), cudaMemcpyHostToDevice, stream_.get()));
    const bool decoded = !files_ || files_->empty() || files_->decode(form.channels, stream_.get());
    if (decoded) sampler_.launch(form, stream_.get());
    PELTON_CUDA(cudaEventRecord(done_.get(), stream_.get()));
    PELTON_CUDA(cudaEventSynchronize(done_.get()));
    return decoded;
  }

  StreamHandle stream_;
  EventHandle done_;
  std::optional<NvjpegFiles> files_;
  PictureSampler sampler_;
  GrowingMemory pixels_;
};

}  // namespace

std::unique_ptr<device::PictureDecoder> make_picture_decoder(int ordinal, bool files) {
  return std::make_unique<Decoder>(ordinal, files);
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
