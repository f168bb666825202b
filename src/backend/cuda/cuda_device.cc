// SPDX-License-Identifier: Apache-2.0
// device::Device of one GPU.
#include <map>
#include <mutex>

#include "backend/cuda.h"
#include "backend/cuda/handles.h"
#include "backend/cuda/implementations.h"
#include "backend/cuda/memory.h"
#include "backend/cuda/pictures/pictures.h"

namespace pelton::backend::cuda {
namespace {

class CudaEvent : public device::Event {
 public:
  explicit CudaEvent(bool timed) : event_(make_event(timed)) {}
  void synchronize() override { PELTON_CUDA(cudaEventSynchronize(event_.get())); }
  double ms_since(const device::Event& earlier) const override {
    float ms = 0;
    PELTON_CUDA(cudaEventElapsedTime(&ms, static_cast<const CudaEvent&>(earlier).get(), event_.get()));
    return ms;
  }
  cudaEvent_t get() const { return event_.get(); }

 private:
  EventHandle event_;
};

class CudaRecording : public device::Recording {
 public:
  explicit CudaRecording(GraphExecHandle exec) : exec_(std::move(exec)) {}
  cudaGraphExec_t get() const { return exec_.get(); }

 private:
  GraphExecHandle exec_;
};

class CudaStream : public device::Stream {
 public:
  CudaStream(cudaStream_t stream, bool own) : stream_(stream) {
    if (own) owner_ = StreamHandle(stream);
  }
  void* native() const override { return stream_; }
  void upload(void* to, const void* host, int64_t bytes) override {
    copy_kind(to, host, bytes, cudaMemcpyHostToDevice);
  }
  void download(void* host, const void* from, int64_t bytes) override {
    copy_kind(host, from, bytes, cudaMemcpyDeviceToHost);
  }
  void copy(void* to, const void* from, int64_t bytes) override {
    copy_kind(to, from, bytes, cudaMemcpyDeviceToDevice);
  }
  void fill(void* to, uint8_t byte, int64_t bytes) override {
    if (bytes > 0) PELTON_CUDA(cudaMemsetAsync(to, byte, static_cast<size_t>(bytes), stream_));
  }
  void record(device::Event& event) override {
    PELTON_CUDA(cudaEventRecord(static_cast<CudaEvent&>(event).get(), stream_));
  }
  void wait(const device::Event& event) override {
    PELTON_CUDA(cudaStreamWaitEvent(stream_, static_cast<const CudaEvent&>(event).get(), 0));
  }
  void synchronize() override { PELTON_CUDA(cudaStreamSynchronize(stream_)); }

  // Other threads may allocate and prepare meanwhile; their calls are not forbidden.
  void begin_recording() override {
    PELTON_CUDA(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeThreadLocal));
  }
  std::unique_ptr<device::Recording> end_recording() override {
    GraphHandle graph;
    PELTON_CUDA(cudaStreamEndCapture(stream_, graph.out()));
    GraphExecHandle exec;
    PELTON_CUDA(cudaGraphInstantiate(exec.out(), graph.get(), 0));
    return std::make_unique<CudaRecording>(std::move(exec));
  }
  void abandon_recording() noexcept override {
    cudaGraph_t graph = nullptr;
    (void)cudaStreamEndCapture(stream_, &graph);
    if (graph) (void)cudaGraphDestroy(graph);
    (void)cudaGetLastError();
  }
  void play(const device::Recording& recording) override {
    PELTON_CUDA(cudaGraphLaunch(static_cast<const CudaRecording&>(recording).get(), stream_));
  }

 private:
  void copy_kind(void* to, const void* from, int64_t bytes, cudaMemcpyKind kind) {
    if (bytes > 0) PELTON_CUDA(cudaMemcpyAsync(to, from, static_cast<size_t>(bytes), kind, stream_));
  }
  cudaStream_t stream_;
  StreamHandle owner_;
};

class CudaDevice : public device::Device, public device::PictureDevice {
 public:
  explicit CudaDevice(device::Target target) : target_(std::move(target)) { activate(); }
  const device::Target& target() const override { return target_; }
  void activate() const override { PELTON_CUDA(cudaSetDevice(target_.ordinal)); }
  void* allocate(int64_t bytes, std::string_view what) override { return allocate_device(bytes, what); }
  void release(void* memory) noexcept override { free_device(memory); }
  void* allocate_pinned(int64_t bytes, std::string_view what) override {
    void* at = nullptr;
    cudaError_t error = cudaHostAlloc(&at, static_cast<size_t>(bytes), cudaHostAllocDefault);
    if (error != cudaSuccess)
      fail_cuda(error, "cudaHostAlloc", cat("no ", bytes, " bytes of pinned host memory for ", what));
    return at;
  }
  void release_pinned(void* memory) noexcept override { (void)cudaFreeHost(memory); }
  int64_t free_bytes() const override {
    size_t free = 0, total = 0;
    PELTON_CUDA(cudaMemGetInfo(&free, &total));
    return static_cast<int64_t>(free);
  }
  int64_t peak_bytes() const override { return peak_device_bytes(); }
  std::unique_ptr<device::Stream> make_stream() override {
    cudaStream_t stream = nullptr;
    PELTON_CUDA(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    return std::make_unique<CudaStream>(stream, true);
  }
  std::unique_ptr<device::Stream> adopt_stream(void* native) override {
    return std::make_unique<CudaStream>(static_cast<cudaStream_t>(native), false);
  }
  std::unique_ptr<device::Event> make_event(bool timed) override {
    return std::make_unique<CudaEvent>(timed);
  }
  std::unique_ptr<device::PictureDecoder> make_picture_decoder(bool files) override {
    return cuda::make_picture_decoder(target_.ordinal, files);
  }
  bool decodes(const device::PictureJob& job, int channels) const override {
    activate();
    return cuda::decodes_picture(target_.ordinal, job, channels);
  }

 private:
  device::Target target_;
};

}  // namespace

std::shared_ptr<device::Device> open_device(const device::Target& target) {
  static auto* const open = new std::map<int, std::weak_ptr<device::Device>>;
  static std::mutex mutex;
  std::lock_guard lock(mutex);
  std::weak_ptr<device::Device>& known = (*open)[target.ordinal];
  if (auto alive = known.lock()) return alive;
  std::string why;
  for (device::Target& t : cuda_devices(why))
    if (t.ordinal == target.ordinal) {
      auto made = std::make_shared<CudaDevice>(std::move(t));
      known = made;
      return made;
    }
  if (why.empty()) why = cat("there is no GPU ", target.ordinal);
  fail(ErrorCode::no_device, cat("device 'cuda:", target.ordinal, "' cannot be used: ", why), "",
       "use --device cpu or --device auto");
}

}  // namespace pelton::backend::cuda
