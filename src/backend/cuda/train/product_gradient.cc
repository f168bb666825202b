// SPDX-License-Identifier: Apache-2.0
// A product of a step's backward half with the gradient of an activation behind it or the sum of rows of an
// operand beside it: as calls one after the other, or as one call of cuBLASLt whose values were compared
// with theirs and which was found faster.
#include "backend/cuda/train/product_gradient.h"

#include <algorithm>
#include <cmath>

#include "backend/cuda/aligned.h"
#include "backend/cuda/implementations.h"
#include "backend/cuda/matmul_call.h"
#include "backend/cuda/own/column_sum.h"
#include "backend/cuda/own/host.h"
#include "backend/cuda/own/move_taps.h"
#include "backend/cuda/own/product_gate.h"
#include "backend/cuda/tactics.h"
#include "base/log.h"
#include "ir/op.h"

namespace pelton::backend::cuda {
namespace {

std::string refuse(const ir::Graph& graph, ir::NodeId id, const device::Target& target) {
  const ir::Node& n = graph[id];
  if (!n.is("fused") || n.get_text("kind") != "product_gradient") return "is another kind of node";
  const ProductGradient p = product_gradient_of(graph, id);
  if (!p.reason.empty()) return p.reason;
  for (const std::vector<ir::ValueId>* values : {&n.inputs, &n.outputs})
    for (ir::ValueId v : *values) {
      if (!elem_of(graph.type(v).dtype))
        return cat("needs f32, f16 or bf16, got ", name(graph.type(v).dtype));
      if (!graph.type(v).layout.is_plain()) return "needs plain data";
    }
  const ir::Type &a = input_type(graph, id, p.a), &b = input_type(graph, id, p.b);
  const ir::Node& product = (*p.body)[p.product];
  if (b.rank() != 2 || a.rank() < 2 || (a.rank() > 2 && product.get_bool("transpose_a")))
    return "needs one matrix on the right for all on the left";
  const ir::Type& d = output_type(graph, id, p.product_output);
  if (a.dtype != b.dtype || d.dtype != a.dtype) return "needs operands and a product of one type";
  if (!p.gate) return {};
  if (input_type(graph, id, p.x).dtype != d.dtype)
    return "needs what the activation read in the product's type";
  if (*p.gate == ir::ActivationGradient::gelu_tanh && a.dtype == DType::f32 && !target.tf32)
    return "the library's GELU is less exact than f32";
  return {};
}

struct Buffers {
  const void *a = nullptr, *b = nullptr, *x = nullptr;
  void *d = nullptr, *sums = nullptr;
  std::byte* scratch = nullptr;
};

// Sizes, and both ways to compute them. Immutable after it is made.
class Problem {
 public:
  Problem(const Instance& instance, const device::Target& target)
      : where(product_gradient_of(instance.graph, instance.id)) {
    PELTON_CHECK(where.reason.empty(), where.reason);
    const ir::Node& product = (*where.body)[where.product];
    const TensorSpec &a = instance.inputs[where.a], &b = instance.inputs[where.b];
    MatmulProblem& m = plain_;
    m.in = m.out = a.dtype;
    m.transpose_a = product.get_bool("transpose_a");
    m.transpose_b = product.get_bool("transpose_b");
    const int64_t columns = a.dims.back(), rows = element_count(Dims(a.dims.begin(), a.dims.end() - 1));
    m.m = m.transpose_a ? columns : rows;
    m.k = m.transpose_a ? rows : columns;
    m.n = b.dims[m.transpose_b ? 0 : 1];
    m.tf32 = target.tf32;
    gate_.type = elem(a.dtype);
    gate_.rows = m.m;
    gate_.columns = m.n;
    gate_.gelu_tanh = gelu();
    if (!where.gate) {
      sum_.type = elem(a.dtype);
      sum_.y_type = elem(instance.outputs[where.sum_output].dtype);
      sum_.rows = m.k;
      sum_.c = where.sums_a ? m.m : m.n;
      sum_.multiprocessors = multiprocessors(target);
      sum_scratch_ = aligned(column_sum_scratch_bytes(sum_));
    }
    if (m.m == 0 || m.n == 0 || m.k == 0) return;
    product_ = MatmulCall::make(m);
    if (!product_) fail(ErrorCode::driver, cat("cuBLASLt has no way to compute ", m.key()));
  }

  // The library's own form of all of it, where it has one.
  void make_whole() {
    if (!product_) return;
    MatmulProblem m = plain_;
    if (!where.gate) {
      m.sums = where.sums_a ? MatmulProblem::Sums::of_a : MatmulProblem::Sums::of_b;
      m.sums_type = sum_.y_type == Elem::f32 ? DType::f32 : m.out;
    } else {
      // Rows of the operand have to be as far apart as the library wants.
      if (gelu() && m.n % 8 != 0) return;
      m.gradient_of = gelu() ? Activation::gelu_tanh : Activation::relu;
      if (!gelu()) mask_bytes_ = aligned(m.m * mask_pitch(m.n) / 8);
    }
    whole_ = MatmulCall::make(m);
  }
  bool has_whole() const { return whole_ != nullptr; }
  std::string key() const {
    return cat("product gradient ", plain_.key(), where.gate ? gelu() ? " gelu" : " relu" : " sum ",
               where.gate ? "" : cat(where.sums_a ? "a" : "b", sum_.y_type == Elem::f32 ? " f32" : ""));
  }

  int64_t scratch_bytes(bool whole) const {
    if (whole) return mask_bytes_ + whole_->workspace_bytes();
    return std::max(product_ ? product_->workspace_bytes() : 0, sum_scratch_);
  }
  void run(bool whole, const Buffers& b, cudaStream_t stream) const {
    if (whole) return run_whole(b, stream);
    if (product_)
      product_->run(b.a, b.b, nullptr, b.d, nullptr, b.scratch, stream);
    else if (plain_.m > 0 && plain_.n > 0)  // sums over nothing
      PELTON_CUDA(cudaMemsetAsync(b.d, 0, static_cast<size_t>(product_bytes()), stream));
    if (where.gate) {
      ProductGate g = gate_;
      g.d = b.d;
      g.x = b.x;
      PELTON_CUDA(apply_gate(g, stream));
    } else {
      ColumnSum s = sum_;
      s.x = where.sums_a ? b.a : b.b;
      s.y = b.sums;
      s.scratch = reinterpret_cast<float*>(b.scratch);  // the product is done with it
      PELTON_CUDA(column_sum(s, stream));
    }
  }
  int64_t product_bytes() const { return byte_size(plain_.out, plain_.m * plain_.n); }
  int64_t sums_count() const { return where.gate ? 0 : sum_.c; }
  DType sums_type() const { return sum_.y_type == Elem::f32 ? DType::f32 : plain_.out; }
  const MatmulProblem& sizes() const { return plain_; }

  const ProductGradient where;

 private:
  bool gelu() const { return where.gate == ir::ActivationGradient::gelu_tanh; }
  void run_whole(const Buffers& b, cudaStream_t stream) const {
    const void* forward = b.x;
    if (mask_bytes_ > 0) {
      ProductGate g = gate_;
      g.x = b.x;
      PELTON_CUDA(gate_mask(g, b.scratch, mask_pitch(plain_.n), stream));
      forward = b.scratch;
    }
    whole_->run(b.a, b.b, nullptr, b.d, b.sums, b.scratch + mask_bytes_, stream, forward);
  }

  MatmulProblem plain_;
  ProductGate gate_;
  ColumnSum sum_;
  int64_t sum_scratch_ = 0, mask_bytes_ = 0;
  std::unique_ptr<MatmulCall> product_, whole_;
};

std::vector<double> download(const void* from, DType type, int64_t count, cudaStream_t stream) {
  Tensor t(type, {count});
  PELTON_CUDA(cudaMemcpyAsync(t.mutable_data(), from, static_cast<size_t>(t.bytes()), cudaMemcpyDeviceToHost,
                              stream));
  PELTON_CUDA(cudaStreamSynchronize(stream));
  return to_doubles(t);
}

// Both round each value a few times: by so many units in the last place of the largest they may differ. Bits
// in another order or another operand's sums are off by the values themselves.
constexpr double kUnitsApart = 8;
bool agree(const std::vector<double>& a, const std::vector<double>& b, DType type, bool tf32) {
  const int digits = type == DType::bf16 ? 7 : type == DType::f16 || tf32 ? 10 : 20;
  double largest = 0, apart = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    largest = std::max(largest, std::abs(a[i]));
    const double d = std::abs(a[i] - b[i]);
    if (std::isnan(d)) return false;
    apart = std::max(apart, d);
  }
  return apart <= kUnitsApart * std::ldexp(largest, -digits);
}

// Whether the whole runs, yields what the parts yield, and is faster.
bool whole_is_better(const Problem& p) {
  const std::string key = p.key();
  if (timing_is_over()) return false;
  const std::vector<std::string> names{"parts", "whole"};
  if (std::optional<size_t> known = known_fastest(key, names)) return *known == 1;
  return fastest_in_memory(key, [&]() -> size_t {
           const MatmulProblem& m = p.sizes();
           StreamHandle stream = make_stream();
           std::vector<DeviceBuffer> memory;
           auto buffer = [&](int64_t bytes) {
             memory.emplace_back(std::max<int64_t>(bytes, 1), "timing a product's gradient");
             return memory.back().get();
           };
           uint32_t seed = 0;
           auto noise = [&](int64_t count) {
             void* at = buffer(byte_size(m.in, count));
             PELTON_CUDA(fill_noise(at, elem(m.in), count, stream.get(), ++seed));
             return at;
           };
           Buffers b;
           b.a = noise(m.m * m.k);
           b.b = noise(m.k * m.n);
           b.x = noise(p.where.gate ? m.m * m.n : 0);
           b.d = buffer(p.product_bytes());
           b.sums = buffer(byte_size(DType::f32, p.sums_count()));
           b.scratch =
               static_cast<std::byte*>(buffer(std::max(p.scratch_bytes(false), p.scratch_bytes(true))));
           std::vector<double> d[2], sums[2];
           std::vector<Way> ways;
           for (const bool whole : {false, true}) {
             ways.push_back({names[whole], [&p, &b, whole](cudaStream_t s) { p.run(whole, b, s); }});
             try {
               // NaN where nothing is written.
               PELTON_CUDA(cudaMemsetAsync(b.d, 0xff, static_cast<size_t>(p.product_bytes()), stream.get()));
               PELTON_CUDA(cudaMemsetAsync(b.sums, 0xff,
                                           static_cast<size_t>(byte_size(p.sums_type(), p.sums_count())),
                                           stream.get()));
               p.run(whole, b, stream.get());
               d[whole] = download(b.d, m.out, m.m * m.n, stream.get());
               sums[whole] = download(b.sums, p.sums_type(), p.sums_count(), stream.get());
             } catch (const Error& e) {
               if (!whole || e.code() == ErrorCode::device_lost) throw;
               log_debug(cat("left out the whole of ", key, ": ", e.message()));
               return 0;
             }
           }
           if (agree(d[0], d[1], m.out, m.tf32) && agree(sums[0], sums[1], p.sums_type(), m.tf32))
             return fastest(key, ways);
           log_warn(cat("left out the whole of ", key, ": it yields other values than its parts"));
           return 0;
         }) == 1;
}

std::unique_ptr<Kernel> prepare(const Instance& instance, const device::Target& target) {
  auto problem = std::make_shared<Problem>(instance, target);
  problem->make_whole();
  const bool whole = problem->has_whole() && whole_is_better(*problem);
  KernelNeeds needs;
  needs.scratch_bytes = problem->scratch_bytes(whole);
  return make_kernel(
      [p = std::shared_ptr<const Problem>(problem), whole](const RunArgs& args) {
        const ProductGradient& w = p->where;
        Buffers b;
        b.a = args.in[w.a];
        b.b = args.in[w.b];
        b.x = w.gate ? args.in[w.x] : nullptr;
        b.d = args.out[w.product_output];
        b.sums = w.gate ? nullptr : args.out[w.sum_output];
        b.scratch = static_cast<std::byte*>(args.scratch);
        p->run(whole, b, stream_of(args));
      },
      std::move(needs));
}

size_t position(const std::vector<ir::ValueId>& list, ir::ValueId v) {
  return static_cast<size_t>(std::find(list.begin(), list.end(), v) - list.begin());
}

}  // namespace

ProductGradient product_gradient_of(const ir::Graph& graph, ir::NodeId node) {
  ProductGradient p;
  auto refuse = [&](std::string why) {
    p.reason = std::move(why);
    return p;
  };
  p.body = &graph[node].get_graph("body");
  const ir::Graph& g = *p.body;
  ir::NodeId sum;
  size_t nodes = 0;
  for (ir::NodeId id : g.order()) {
    nodes += !g[id].is("constant");
    if (g[id].is("matmul")) {
      if (p.product) return refuse("holds two products");
      p.product = id;
    }
    if (g[id].is("reduce_sum")) sum = id;
  }
  if (!p.product) return refuse("holds no product");
  const ir::ValueId d = g[p.product].outputs[0];
  p.a = position(g.inputs, g[p.product].inputs[0]);
  p.b = position(g.inputs, g[p.product].inputs[1]);
  if (p.a == g.inputs.size() || p.b == g.inputs.size()) return refuse("computes operands of its product");
  if (!sum) {
    if (g.outputs.size() != 1) return refuse("yields more than a gradient");
    const auto gate = ir::activation_gradient(g, g.outputs[0]);
    if (!gate || gate->gradient != d || gate->nodes.size() + 1 != nodes)
      return refuse("does more than an activation's gradient");
    p.x = position(g.inputs, gate->x);
    if (p.x == g.inputs.size() || g.type(gate->x).shape != g.type(d).shape ||
        g.type(g.outputs[0]).shape != g.type(d).shape)
      return refuse("has an activation of other sizes");
    p.gate = gate->kind;
    return p;
  }
  ir::ValueId summed = g[sum].inputs[0];
  size_t taken = 2;
  if (const ir::NodeId cast = g[summed].producer; cast && g[cast].is("cast")) {
    summed = g[cast].inputs[0];
    ++taken;
  }
  if (taken != nodes || g.outputs.size() != 2) return refuse("does more than a product and a sum");
  p.product_output = position(g.outputs, d);
  p.sum_output = position(g.outputs, g[sum].outputs[0]);
  if (p.product_output > 1 || p.sum_output > 1) return refuse("does more than a product and a sum");
  const ir::Node& product = g[p.product];
  p.sums_a = summed == product.inputs[0] && product.get_bool("transpose_a");
  const bool sums_b = summed == product.inputs[1] && !product.get_bool("transpose_b");
  const ir::Ints& axes = g[sum].get_ints("axes");
  if ((!p.sums_a && !sums_b) || g.type(summed).rank() != 2 || (axes != ir::Ints{0} && axes != ir::Ints{-2}) ||
      g[sum].get_bool("keep_dims"))
    return refuse("sums up something else than rows of what its product does");
  return p;
}

void add_product_gradient(Registry& registry) {
  registry.add({.name = "cuda.product_gradient",
                .ops = {"fused"},
                .refuse = refuse,
                .prepare = prepare,
                .device = device::Kind::cuda});
}

}  // namespace pelton::backend::cuda
