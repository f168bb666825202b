// SPDX-License-Identifier: Apache-2.0
// oneDNN seen from here: one engine a process, descriptors of our tensors, and kernels made of primitives.
#pragma once

#include <dnnl.hpp>
#include <mutex>
#include <vector>

#include "backend/cpu/support.h"
#include "backend/cpu/tile/step.h"

namespace pelton::backend::cpu::onednn {

using Desc = dnnl::memory::desc;
using Tag = dnnl::memory::format_tag;
using Type = dnnl::memory::data_type;

// The first call fixes the instruction set of the library for the process (PELTON_CPU_ISA lowers it).
const dnnl::engine& engine();
// Why the library does not serve this target; "" if it does. (Below AVX2 it has hardly any fast code.)
std::string refuse_target(const device::Target& target);

// Without VNNI the library adds pairs of 8-bit products in 16 bits, which saturate.
inline constexpr const char* kNoVnni = "8-bit sums are exact with VNNI only";

Type type_of(DType dtype);  // undef where the library has none
inline bool has_type(DType dtype) {
  return type_of(dtype) != Type::undef;
}
Desc desc_of(const TensorSpec& spec);
Desc plain_desc(const Dims& dims, DType dtype);
// Any layout the library likes best.
Desc any_desc(const Dims& dims, DType dtype);

// Where a primitive finds the bytes of an argument.
struct Place {
  enum Kind : uint8_t { input, output, scratch, packed } kind = input;
  int64_t index = 0;  // of the input, output or packed tensor; byte offset in scratch
};
inline Place input(int64_t i) {
  return {Place::input, i};
}
inline Place output(int64_t i) {
  return {Place::output, i};
}

struct Argument {
  int id = 0;  // DNNL_ARG_*
  Desc desc;
  Place place;
  int64_t image_bytes = 0;  // the place moves on by this from one image to the next (Sequence::repeat)
};

// Primitives run one after another; their scratch pads and the tensors between them lie in the kernel's
// scratch. Memory objects are made in prepare and kept in a free list, one set for each thread that runs the
// kernel at once, so a run allocates only when more threads than ever before run it.
class Sequence final : public Kernel {
 public:
  int64_t reserve(int64_t bytes);  // offset in scratch
  Place reserve(const Desc& desc) { return {Place::scratch, reserve(static_cast<int64_t>(desc.get_size()))}; }
  // Bytes that live as long as the kernel.
  Place keep(std::shared_ptr<const Tensor> packed);
  Place keep(Tensor packed) { return keep(std::make_shared<const Tensor>(std::move(packed))); }
  // Made for attributes(): the primitive's pad becomes part of the scratch.
  void add(dnnl::primitive primitive, std::vector<Argument> arguments);
  // A copy between layouts or types as a step; returns where the result is.
  Place add_reorder(const Desc& from, Place source, const Desc& to);
  void add_reorder(const Desc& from, Place source, const Desc& to, Place target);
  // As a step: `f`, of one operand, over `count` f32 elements in place.
  void add_tail(StepFunction f, Place at, int64_t count, int64_t image_bytes);
  // All steps run once for each of `images`, so that what one leaves is still in the cache for the next. With
  // no fewer images than threads (as of seal()) each thread takes images of its own, always the same ones:
  // cores may be far from each other's caches.
  void repeat(int64_t images) { images_ = images; }
  // No more primitives; makes the first set of memory objects.
  void seal();

  int64_t scratch_bytes() const override { return scratch_bytes_ * lanes_; }
  int64_t packed_bytes() const override { return packed_bytes_; }
  void run(const RunArgs& args) const override;
  bool reads(size_t input) const override;

 private:
  struct Step {
    dnnl::primitive primitive;  // empty: `tail` on the bytes of the only argument
    std::vector<Argument> arguments;
    StepFunction tail = nullptr;
    int64_t count = 0;
  };
  struct Bound;  // memory objects and a stream of one running thread
  std::unique_ptr<Bound> bind() const;
  void* address(const Argument& argument, const RunArgs& args, int64_t image) const;
  void run_images(const RunArgs& args, int64_t begin, int64_t end) const;

  std::vector<Step> steps_;
  std::vector<std::shared_ptr<const Tensor>> packed_;
  // scratch_bytes_: of one lane. lanes_: shares of the images that may run at the same time, each with
  // scratch of its own.
  int64_t scratch_bytes_ = 0, packed_bytes_ = 0, images_ = 1, lanes_ = 1;
  mutable std::mutex mutex_;
  mutable std::vector<std::unique_ptr<Bound>> free_;  // guarded by mutex_

 public:
  Sequence();
  ~Sequence() override;
};

// The bytes of `from`, which lie as `from_desc` says, in the layout `to`. Kernels of one constant at several
// sizes share the result for as long as one of them lives.
std::shared_ptr<const Tensor> reordered(const Tensor& from, const Desc& from_desc, const Desc& to);
// Primitive attributes with a scratch pad that we provide.
dnnl::primitive_attr attributes();
// The implementation is a plain reference loop of the library.
bool is_reference(const dnnl::primitive_desc_base& pd);
// Runs f inside the pool and turns the library's exceptions into internal errors.
void guarded(FunctionRef<void()> f);

}  // namespace pelton::backend::cpu::onednn
