// SPDX-License-Identifier: Apache-2.0
#include "serve/engine/cuda_region.h"

#include <dlfcn.h>

#include <cstring>
#include <map>
#include <mutex>

#include "base/error.h"

namespace pelton::serve {
namespace {

// The driver's interface as far as it is needed here: published names, results are 0 or an error.
struct IpcHandle {
  char bytes[64];
};
using Context = void*;
using Address = unsigned long long;
constexpr unsigned kLazyPeerAccess = 1;

class Driver {
 public:
  // no_device if the machine has none.
  static Driver& get() {
    static Driver driver;
    if (!driver.why_not_.empty())
      fail(ErrorCode::no_device, cat("CUDA shared memory needs a GPU: ", driver.why_not_), "",
           "use system shared memory, or send tensors in the request");
    return driver;
  }

  void check(int result, std::string_view doing) const {
    if (result == 0) return;
    const char* text = nullptr;
    error_name(result, &text);
    fail(ErrorCode::driver, cat("the CUDA driver cannot ", doing, ": ", text ? text : cat("error ", result)));
  }

  // Makes the device's primary context current in this thread.
  void use(int64_t device) {
    Context context = nullptr;
    {
      std::lock_guard lock(mutex_);
      auto it = contexts_.find(device);
      if (it == contexts_.end()) {
        int count = 0, handle = 0;
        check(device_count(&count), "count devices");
        if (device < 0 || device >= count)
          fail(ErrorCode::no_device, cat("there is no CUDA device ", device, ", this machine has ", count));
        check(device_get(&handle, static_cast<int>(device)), "find the device");
        check(retain(&context, handle), "use the device");
        it = contexts_.emplace(device, context).first;
      }
      context = it->second;
    }
    check(set_current(context), "use the device");
  }

  int (*device_count)(int*) = nullptr;
  int (*device_get)(int*, int) = nullptr;
  int (*retain)(Context*, int) = nullptr;
  int (*set_current)(Context) = nullptr;
  int (*open)(Address*, IpcHandle, unsigned) = nullptr;
  int (*close)(Address) = nullptr;
  int (*range)(Address*, size_t*, Address) = nullptr;
  int (*to_host)(void*, Address, size_t) = nullptr;
  int (*to_device)(Address, const void*, size_t) = nullptr;
  int (*error_name)(int, const char**) = nullptr;

 private:
  Driver() {
    library_ = ::dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    if (!library_) {
      why_not_ = "there is no driver library (libcuda.so.1)";
      return;
    }
    int (*init)(unsigned) = nullptr;
    find(init, "cuInit");
    find(device_count, "cuDeviceGetCount");
    find(device_get, "cuDeviceGet");
    find(retain, "cuDevicePrimaryCtxRetain");
    find(set_current, "cuCtxSetCurrent");
    find(open, "cuIpcOpenMemHandle_v2");
    find(close, "cuIpcCloseMemHandle");
    find(range, "cuMemGetAddressRange_v2");
    find(to_host, "cuMemcpyDtoH_v2");
    find(to_device, "cuMemcpyHtoD_v2");
    find(error_name, "cuGetErrorName");
    if (why_not_.empty())
      if (const int result = init(0)) why_not_ = cat("the driver does not start (error ", result, ")");
  }

  template <class F>
  void find(F& function, const char* name) {
    function = reinterpret_cast<F>(::dlsym(library_, name));
    if (!function) why_not_ = cat("the driver lacks ", name);
  }

  void* library_ = nullptr;
  std::string why_not_;
  std::mutex mutex_;
  std::map<int64_t, Context> contexts_;  // kept for the life of the process
};

class CudaRegion final : public GpuRegion {
 public:
  CudaRegion(std::string_view handle, int64_t device, uint64_t size) : device_(device) {
    IpcHandle h;
    if (handle.size() != sizeof h.bytes)
      fail(ErrorCode::bad_name,
           cat("a CUDA memory handle has ", sizeof h.bytes, " bytes, not ", handle.size()));
    std::memcpy(h.bytes, handle.data(), sizeof h.bytes);
    driver_.use(device_);
    driver_.check(driver_.open(&address_, h, kLazyPeerAccess), "open the memory of the handle");
    Address base = 0;
    size_t there = 0;
    if (driver_.range(&base, &there, address_) != 0 || there - (address_ - base) < size) {
      driver_.close(address_);
      fail(ErrorCode::bad_shape, cat("a CUDA memory region of ", size, " bytes has only ", there));
    }
  }
  ~CudaRegion() override {
    try {
      driver_.use(device_);
      driver_.close(address_);
    } catch (const Error&) {  // the device is lost, and the mapping with it
    }
  }

  void read(void* to, size_t offset, size_t size) const override {
    driver_.use(device_);
    driver_.check(driver_.to_host(to, address_ + offset, size), "copy from the client's memory");
  }
  void write(const void* from, size_t offset, size_t size) const override {
    driver_.use(device_);
    driver_.check(driver_.to_device(address_ + offset, from, size), "copy to the client's memory");
  }

 private:
  Driver& driver_ = Driver::get();
  const int64_t device_;
  Address address_ = 0;
};

}  // namespace

std::shared_ptr<const GpuRegion> open_cuda_region(std::string_view handle, int64_t device, uint64_t size) {
  return std::make_shared<CudaRegion>(handle, device, size);
}

}  // namespace pelton::serve
