// SPDX-License-Identifier: Apache-2.0
// fft through cuFFT, which is opened when the first such kernel is prepared: forward transforms of f32 along
// the last axis, of real lines one-sided and of complex ones.
#include "backend/cuda/fft.h"

#include <cufft.h>

#include <mutex>

#include "backend/cuda/library_file.h"
#include "backend/cuda/own/host.h"
#include "ir/op.h"

namespace pelton::backend::cuda {
namespace {

struct CufftTable {
  decltype(&::cufftCreate) create = nullptr;
  decltype(&::cufftDestroy) destroy = nullptr;
  decltype(&::cufftSetAutoAllocation) set_auto_allocation = nullptr;
  decltype(&::cufftMakePlanMany64) make_plan = nullptr;
  decltype(&::cufftSetStream) set_stream = nullptr;
  decltype(&::cufftSetWorkArea) set_work_area = nullptr;
  decltype(&::cufftExecR2C) real = nullptr;
  decltype(&::cufftExecC2C) complex = nullptr;
  std::string error;
};

const CufftTable& cufft() {
  static const auto* const loaded = [] {
    auto* out = new CufftTable;
    LibraryFile library("cuFFT", cat("libcufft.so.", CUFFT_VER_MAJOR));
    library.get(out->create, "cufftCreate");
    library.get(out->destroy, "cufftDestroy");
    library.get(out->set_auto_allocation, "cufftSetAutoAllocation");
    library.get(out->make_plan, "cufftMakePlanMany64");
    library.get(out->set_stream, "cufftSetStream");
    library.get(out->set_work_area, "cufftSetWorkArea");
    library.get(out->real, "cufftExecR2C");
    library.get(out->complex, "cufftExecC2C");
    out->error = library.error();
    return out;
  }();
  if (!loaded->error.empty())
    fail(ErrorCode::driver, loaded->error, "",
         "install it, or name its folder in the environment variable PELTON_CUDA_LIBS");
  return *loaded;
}

void check(cufftResult result, const char* call) {
  if (result == CUFFT_SUCCESS) return;
  fail(result == CUFFT_ALLOC_FAILED ? ErrorCode::out_of_memory : ErrorCode::driver,
       cat(call, " failed: status ", static_cast<int>(result)));
}

std::string refuse(const ir::Graph& graph, ir::NodeId id, const device::Target&) {
  if (std::string why = refuse_layouts(graph, id); !why.empty()) return why;
  const ir::Node& n = graph[id];
  const ir::Type& x = input_type(graph, id, 0);
  if (x.dtype != DType::f32) return cat("needs f32, got ", name(x.dtype));
  if (n.get_bool("inverse")) return "transforms forwards";
  const bool real = x.shape.back().is_const() && x.shape.back().value() == 1;
  if (real != n.get_bool("onesided")) return "transforms real lines one-sided";
  if (n.inputs.size() > 1 && n.inputs[1]) return "neither cuts nor pads";
  const int64_t axis = n.get_int("axis");
  if ((axis < 0 ? axis + x.rank() : axis) != x.rank() - 2) return "transforms along the last axis";
  return {};
}

// A plan's stream and work area are set for each run, so runs enqueue one at a time.
struct Plan {
  cufftHandle handle = 0;
  std::mutex mutex;
  ~Plan() {
    if (handle) (void)cufft().destroy(handle);
  }
};

std::unique_ptr<Kernel> prepare(const Instance& instance, const device::Target&) {
  const TensorSpec &in = instance.inputs[0], &out = instance.outputs[0];
  if (out.count() == 0) return nothing();
  const bool real = in.dims.back() == 1;
  long long length = in.dims[in.dims.size() - 2], yields = out.dims[out.dims.size() - 2];
  const long long lines = in.count() / (length * in.dims.back());
  auto plan = std::make_shared<Plan>();
  size_t work = 0;
  check(cufft().create(&plan->handle), "cufftCreate");
  check(cufft().set_auto_allocation(plan->handle, 0), "cufftSetAutoAllocation");
  check(cufft().make_plan(plan->handle, 1, &length, &length, 1, length, &yields, 1, yields,
                          real ? CUFFT_R2C : CUFFT_C2C, lines, &work),
        "cufftMakePlanMany64");
  KernelNeeds needs;
  needs.scratch_bytes = static_cast<int64_t>(work);
  return make_kernel(
      [plan, real, work](const RunArgs& args) {
        std::lock_guard lock(plan->mutex);
        check(cufft().set_stream(plan->handle, stream_of(args)), "cufftSetStream");
        if (work > 0) check(cufft().set_work_area(plan->handle, args.scratch), "cufftSetWorkArea");
        // Neither form writes its input.
        auto* const x = const_cast<void*>(args.in[0]);
        auto* const y = static_cast<cufftComplex*>(args.out[0]);
        if (real)
          check(cufft().real(plan->handle, static_cast<cufftReal*>(x), y), "cufftExecR2C");
        else
          check(cufft().complex(plan->handle, static_cast<cufftComplex*>(x), y, CUFFT_FORWARD),
                "cufftExecC2C");
      },
      std::move(needs));
}

}  // namespace

void add_fft(Registry& registry) {
  registry.add({.name = "cufft.fft",
                .ops = {"fft"},
                .refuse = refuse,
                .prepare = prepare,
                .device = device::Kind::cuda});
}

}  // namespace pelton::backend::cuda
