// SPDX-License-Identifier: Apache-2.0
#include "backend/cpu/onednn/engine.h"

#include <cstring>

#include "base/cat.h"
#include "base/huge_pages.h"
#include "runtime/late_weights.h"
#include "runtime/packed_weights.h"

namespace pelton::backend::cpu::onednn {
namespace {

dnnl::cpu_isa library_isa(device::CpuIsa isa) {
  switch (isa) {
    case device::CpuIsa::scalar:
    case device::CpuIsa::avx2:
      return dnnl::cpu_isa::avx2;
    case device::CpuIsa::avx512:
      return dnnl::cpu_isa::avx512_core;
    case device::CpuIsa::avx512_vnni:
      return dnnl::cpu_isa::avx512_core_vnni;
    case device::CpuIsa::avx512_bf16:
      break;
  }
  return dnnl::cpu_isa::isa_default;
}

}  // namespace

const dnnl::engine& engine() {
  static const dnnl::engine instance = [] {
    dnnl::set_max_cpu_isa(library_isa(device::detect_cpu().isa));
    return dnnl::engine(dnnl::engine::kind::cpu, 0);
  }();
  return instance;
}

std::string refuse_target(const device::Target& target) {
  return target.isa >= device::CpuIsa::avx2 ? "" : "oneDNN is used from AVX2 on";
}

Type type_of(DType t) {
  switch (t) {
    case DType::f32:
      return Type::f32;
    case DType::bf16:
      return Type::bf16;
    case DType::f16:
      return Type::f16;
    case DType::i32:
      return Type::s32;
    case DType::i8:
      return Type::s8;
    case DType::u8:
      return Type::u8;
    default:
      return Type::undef;
  }
}

Desc plain_desc(const Dims& dims, DType dtype) {
  return Desc(dims, type_of(dtype), row_major_strides(dims));
}
Desc any_desc(const Dims& dims, DType dtype) {
  return Desc(dims, type_of(dtype), Tag::any);
}

Desc desc_of(const TensorSpec& spec) {
  const size_t rank = spec.dims.size();
  if (spec.layout.is_plain() || rank < 2) return plain_desc(spec.dims, spec.dtype);
  if (spec.layout.kind == ir::Layout::Kind::channels_last) {
    Dims strides(rank);
    strides[1] = 1;
    int64_t step = spec.dims[1];
    for (size_t d = rank; d-- > 2; step *= spec.dims[d]) strides[d] = step;
    strides[0] = step;
    return Desc(spec.dims, type_of(spec.dtype), strides);
  }
  const bool sixteen = spec.layout.block == 16;
  PELTON_CHECK(sixteen || spec.layout.block == 8, "channel block of ", int{spec.layout.block});
  PELTON_CHECK(rank >= 3 && rank <= 5, "a blocked tensor of rank ", rank);
  const Tag tags[3][2] = {
      {Tag::nCw8c, Tag::nCw16c}, {Tag::nChw8c, Tag::nChw16c}, {Tag::nCdhw8c, Tag::nCdhw16c}};
  return Desc(spec.dims, type_of(spec.dtype), tags[rank - 3][sixteen ? 1 : 0]);
}

dnnl::primitive_attr attributes() {
  dnnl::primitive_attr attr;
  attr.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  return attr;
}

bool is_reference(const dnnl::primitive_desc_base& pd) {
  return std::strstr(pd.impl_info_str(), "ref") != nullptr;
}

void guarded(FunctionRef<void()> f) {
  run_in_pool([&] {
    try {
      f();
    } catch (const dnnl::error& e) {
      fail(ErrorCode::internal, cat("oneDNN: ", e.what(), " (status ", static_cast<int>(e.status), ")"));
    }
  });
}

// Arguments of every step in execution order, with the memory objects that carry them.
struct Sequence::Bound {
  dnnl::stream stream{engine()};
  std::vector<dnnl::memory> memories;
  std::vector<std::vector<dnnl_exec_arg_t>> arguments;
};

Sequence::Sequence() = default;
Sequence::~Sequence() = default;

int64_t Sequence::reserve(int64_t bytes) {
  const int64_t at = scratch_bytes_;
  scratch_bytes_ += align64(bytes);
  return at;
}
Place Sequence::keep(std::shared_ptr<const Tensor> packed) {
  packed_bytes_ += packed->bytes();
  packed_.push_back(std::move(packed));
  return {Place::packed, static_cast<int64_t>(packed_.size()) - 1};
}
void Sequence::add(dnnl::primitive primitive, std::vector<Argument> arguments) {
  // Asked of the primitive: the library may have found it in its cache, made from an equal descriptor that
  // wants another pad than ours would.
  dnnl_memory_desc_t pad_desc = nullptr;
  dnnl::error::wrap_c_api(
      dnnl_memory_desc_clone(&pad_desc, dnnl_primitive_desc_query_md(primitive.get_primitive_desc(),
                                                                     dnnl_query_scratchpad_md, 0)),
      "cannot read the scratch pad of a primitive");
  const Desc pad(pad_desc);
  if (pad.get_size() > 0) arguments.push_back({DNNL_ARG_SCRATCHPAD, pad, reserve(pad)});
  steps_.push_back({std::move(primitive), std::move(arguments)});
}
void Sequence::add_tail(StepFunction f, Place at, int64_t count, int64_t image_bytes) {
  steps_.push_back({{}, {{0, {}, at, image_bytes}}, f, count});
}
void Sequence::add_reorder(const Desc& from, Place source, const Desc& to, Place target) {
  const dnnl::reorder::primitive_desc pd(engine(), from, engine(), to, attributes());
  add(dnnl::reorder(pd), {{DNNL_ARG_FROM, from, source}, {DNNL_ARG_TO, to, target}});
}
Place Sequence::add_reorder(const Desc& from, Place source, const Desc& to) {
  const Place target = reserve(to);
  add_reorder(from, source, to, target);
  return target;
}
void Sequence::seal() {
  // A few for each thread, so that none waits long for the last.
  constexpr int64_t kMost = 16, kOfAThread = 4;
  const int64_t workers = threads();
  if (workers > 1 && images_ >= workers) lanes_ = std::min({images_, kMost, kOfAThread * workers});
  free_.push_back(bind());
}

std::unique_ptr<Sequence::Bound> Sequence::bind() const {
  auto bound = std::make_unique<Bound>();
  for (const Step& step : steps_) {
    auto& list = bound->arguments.emplace_back();
    if (step.tail) continue;
    for (const Argument& a : step.arguments) {
      void* fixed = a.place.kind == Place::packed
                        ? const_cast<void*>(packed_[static_cast<size_t>(a.place.index)]->data())
                        : nullptr;
      bound->memories.emplace_back(a.desc, engine(), fixed);
      list.push_back({a.id, bound->memories.back().get()});
    }
  }
  return bound;
}

void* Sequence::address(const Argument& a, const RunArgs& args, int64_t image) const {
  const auto i = static_cast<size_t>(a.place.index);
  const int64_t moved = image * a.image_bytes;
  switch (a.place.kind) {
    case Place::input:
      return offset(const_cast<void*>(args.in[i]), moved);
    case Place::output:
      return offset(args.out[i], moved);
    case Place::scratch:
      return offset(args.scratch, a.place.index + moved);
    case Place::packed:
      break;
  }
  return const_cast<void*>(packed_[i]->data());
}

bool Sequence::reads(size_t input) const {
  for (const Step& step : steps_)
    for (const Argument& a : step.arguments)
      if (a.place.kind == Place::input && static_cast<size_t>(a.place.index) == input) return true;
  return false;
}

void Sequence::run(const RunArgs& args) const {
  guarded([&] {
    if (lanes_ == 1) return run_images(args, 0, images_);
    const int64_t grain = (images_ + lanes_ - 1) / lanes_;
    parallel_for(0, images_, grain, [&](int64_t begin, int64_t end) {
      RunArgs own = args;
      own.scratch = offset(args.scratch, begin / grain * scratch_bytes_);
      run_images(own, begin, end);
    });
  });
}

void Sequence::run_images(const RunArgs& args, int64_t begin, int64_t end) const {
  std::unique_ptr<Bound> bound;
  {
    std::lock_guard lock(mutex_);
    if (!free_.empty()) {
      bound = std::move(free_.back());
      free_.pop_back();
    }
  }
  if (!bound) bound = bind();
  for (int64_t image = begin; image < end; ++image) {
    size_t memory = 0;
    for (size_t s = 0; s < steps_.size(); ++s) {
      const Step& step = steps_[s];
      if (step.tail) {
        auto* data = static_cast<float*>(address(step.arguments[0], args, image));
        parallel_for(0, step.count, grain_for(step.count, 4), [&](int64_t first, int64_t last) {
          pelton::backend::cpu::Step call;
          call.in[0] = call.out = data + first;
          step.tail(call, last - first);
        });
        continue;
      }
      for (const Argument& a : step.arguments) {
        dnnl::memory& m = bound->memories[memory++];
        if (a.place.kind != Place::packed) m.set_data_handle(address(a, args, image));
      }
      dnnl::error::wrap_c_api(
          dnnl_primitive_execute(step.primitive.get(), bound->stream.get(),
                                 static_cast<int>(bound->arguments[s].size()), bound->arguments[s].data()),
          "cannot run a primitive");
    }
  }
  std::lock_guard lock(mutex_);
  free_.push_back(std::move(bound));
}

namespace {

// The name of a layout for plan files: everything that says where an element lies; "" for those that hold
// more than the elements.
std::string order_of(const Desc& from, const Desc& to) {
  std::string out = cat("onednn ", DNNL_VERSION_MAJOR, ".", DNNL_VERSION_MINOR);
  for (const Desc* d : {&from, &to}) {
    if (d->get_format_kind() != dnnl::memory::format_kind::blocked) return {};
    const Dims padded = d->get_padded_dims(), strides = d->get_strides();
    if (d->get_size() != static_cast<size_t>(element_count(padded)) *
                             dnnl_data_type_size(static_cast<dnnl_data_type_t>(d->get_data_type())))
      return {};
    append(out, cat(" ", static_cast<int>(d->get_data_type()), padded, strides));
    for (int i = 0; i < d->get_inner_nblks(); ++i)
      append(out, cat(" ", d->get_inner_blks()[static_cast<size_t>(i)], "of",
                      d->get_inner_idxs()[static_cast<size_t>(i)]));
  }
  return out;
}

}  // namespace

std::shared_ptr<const Tensor> reordered(const Tensor& from, const Desc& from_desc, const Desc& to) {
  const auto bytes = static_cast<int64_t>(to.get_size());
  const auto make = [&](void* result) {
    runtime::LateWeights::instance().ready(from.data());
    dnnl::memory source(from_desc, engine(), const_cast<void*>(from.data()));
    dnnl::memory target(to, engine(), result);
    dnnl::stream stream(engine());
    dnnl::reorder(source, target).execute(stream, source, target);
    stream.wait();
  };
  if (const std::string order = order_of(from_desc, to); !order.empty())
    return runtime::PackedWeights::instance().get(from, order, bytes, make);
  auto fresh = std::make_shared<Tensor>(DType::u8, Dims{bytes});
  prefer_huge_pages(fresh->mutable_data(), static_cast<size_t>(bytes));
  make(fresh->mutable_data());
  return fresh;
}

}  // namespace pelton::backend::cpu::onednn
