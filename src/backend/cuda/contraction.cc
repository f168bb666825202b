// SPDX-License-Identifier: Apache-2.0
// matmul on cuBLASLt, with scale, bias, residual and activation where the library applies them.
#include <algorithm>

#include "backend/cuda/implementations.h"
#include "backend/cuda/matmul_call.h"
#include "backend/cuda/memory.h"
#include "backend/cuda/own/host.h"
#include "backend/cuda/own/move_taps.h"
#include "backend/cuda/ragged_product.h"
#include "backend/group.h"
#include "ir/op.h"

namespace pelton::backend::cuda {
namespace {

// The steps of a group as one call: act(alpha A B + residual + bias).
struct Epilogue {
  std::string reason;  // not empty: the call cannot do them
  float alpha = 1;
  const GroupOperand* bias = nullptr;
  const GroupOperand* residual = nullptr;
  Activation activation = Activation::none;
};

bool is_row(const Shape& shape, const Dim& columns) {
  for (size_t d = 0; d + 1 < shape.size(); ++d)
    if (shape[d] != Dim(1)) return false;
  return !shape.empty() && shape.back() == columns;
}

DType dtype_of(const ir::Graph& graph, ir::NodeId id, const GroupOperand& o) {
  if (o.input >= 0) return graph.type(graph[id].inputs[static_cast<size_t>(o.input)]).dtype;
  return o.constant.dtype();
}

Epilogue epilogue_of(const Group& group, const ir::Graph& graph, ir::NodeId id) {
  Epilogue e;
  auto refuse = [&](std::string why) {
    e.reason = std::move(why);
    return e;
  };
  const Shape& shape = group.graph->type(group.node().outputs[0]).shape;
  const bool matrix = group.graph->type(group.node().inputs[1]).rank() >= 2;
  for (const GroupStep& s : group.steps) {
    if (e.activation != Activation::none) return refuse(cat(s.op, " follows an activation"));
    const bool adds = e.bias || e.residual;
    if (s.kind == GroupStep::linear) {
      if (s.imm[1] != 0 || adds) return refuse("a shift, or a scale of a sum");
      e.alpha *= s.imm[0];
    } else if (s.kind == GroupStep::eltwise && s.op == "relu") {
      e.activation = Activation::relu;
    } else if (s.kind == GroupStep::eltwise && s.op == "gelu_tanh") {
      e.activation = Activation::gelu_tanh;
    } else if (s.kind == GroupStep::binary && s.op == "add") {
      const DType t = dtype_of(graph, id, s.operand);
      if (s.operand.input >= 0 &&
          !graph.type(graph[id].inputs[static_cast<size_t>(s.operand.input)]).layout.is_plain())
        return refuse("an operand that is not plain");
      // Columns of the product; of a matrix by a vector the last axis are its rows.
      if (!e.bias && matrix && shape.size() >= 2 && is_row(s.operand.shape, shape.back()) &&
          (t == group.result || s.operand.constant.defined()))
        e.bias = &s.operand;
      else if (!e.residual && s.operand.input >= 0 && s.operand.shape == shape && t == group.result)
        e.residual = &s.operand;
      else
        return refuse(cat("adds ", name(t), cat(s.operand.shape)));
    } else {
      return refuse(cat("step ", s.kind == GroupStep::linear ? "linear" : s.op));
    }
  }
  return e;
}

std::string refuse(const ir::Graph& graph, ir::NodeId id, const device::Target& target) {
  const Group group = parse_group(graph, id);
  if (!group.reason.empty()) return group.reason;
  const ir::Node& n = group.node();
  if (!n.is("matmul")) return "is not around a matrix product";
  for (size_t i = 2; i < group.operands.size(); ++i)
    if (group.operands[i].present()) return "has zero points";
  for (size_t i = 0; i < 2; ++i) {
    if (group.operands[i].input < 0) return "has a matrix of equal elements in its body";
    if (!group.graph->type(n.inputs[i]).layout.is_plain()) return "needs plain operands";
  }
  const DType in = group.graph->type(n.inputs[0]).dtype, out = group.result;
  if (in != DType::f32 && in != DType::f16 && in != DType::bf16 && in != DType::f64)
    return cat("needs floats, got ", name(in));
  if (out != in && !(out == DType::f32 && (in == DType::f16 || in == DType::bf16)))
    return cat("does not yield ", name(out), " from ", name(in));
  if (in == DType::f64 && !group.steps.empty()) return "f64 has no epilogue";
  if (!graph.type(graph[id].outputs[0]).layout.is_plain()) return "yields a plain result";
  const Epilogue e = epilogue_of(group, graph, id);
  if (e.reason.empty() && e.activation == Activation::gelu_tanh && in == DType::f32 && !target.tf32)
    return "the library's GELU is less exact than f32";
  return e.reason;
}

// One operand as [batch..., rows, columns] in memory order, before its transposition.
struct Matrix {
  Dims batch;
  int64_t rows = 1, columns = 1;
  bool transposed = false;
};
Matrix matrix_of(const Dims& dims, bool left, bool transposed) {
  Matrix m;
  m.transposed = transposed;
  if (dims.size() == 1) {
    (left ? m.columns : m.rows) = dims[0];
    return m;
  }
  m.batch.assign(dims.begin(), dims.end() - 2);
  m.rows = dims[dims.size() - 2];
  m.columns = dims.back();
  return m;
}

// Batches of equal distance: merged dims, outermost first, with the distance in elements of each operand.
struct Batch {
  int64_t count, a, b, d;
};
std::vector<Batch> batches_of(const Matrix& a, const Matrix& b, int64_t per_d) {
  size_t rank = std::max(a.batch.size(), b.batch.size());
  std::vector<Batch> out;  // innermost first while it grows
  int64_t at_a = a.rows * a.columns, at_b = b.rows * b.columns, at_d = per_d;
  for (size_t i = 0; i < rank; ++i) {
    int64_t da = i < a.batch.size() ? a.batch[a.batch.size() - 1 - i] : 1;
    int64_t db = i < b.batch.size() ? b.batch[b.batch.size() - 1 - i] : 1;
    int64_t count = da == 1 ? db : da;
    Batch next{count, da == 1 ? 0 : at_a, db == 1 ? 0 : at_b, at_d};
    at_a *= da;
    at_b *= db;
    at_d *= count;
    if (count == 1) continue;
    if (!out.empty()) {
      Batch& last = out.back();
      if (next.a == last.a * last.count && next.b == last.b * last.count && next.d == last.d * last.count) {
        last.count *= count;
        continue;
      }
    }
    out.push_back(next);
  }
  std::reverse(out.begin(), out.end());
  return out;
}

class MatmulKernel : public Kernel {
 public:
  int64_t scratch_bytes() const override {
    if (ragged) return ragged->scratch_bytes();
    int64_t bytes = call ? call->workspace_bytes() : 0;
    return bytes + zero_bytes;
  }
  int64_t packed_bytes() const override {
    return (bias_packed ? bias_packed->bytes() : 0) + (packed_b() ? packed_b()->bytes() : 0);
  }
  bool reads(size_t input) const override {
    const auto i = static_cast<int>(input);
    return i == a || (i == b && !packed_b()) || i == bias || i == residual;
  }
  void run(const RunArgs& args) const override {
    if (!call && !ragged) return;  // an empty result
    auto stream = static_cast<cudaStream_t>(args.stream);
    auto in = [&](int i) {
      return i < 0 ? nullptr : static_cast<const std::byte*>(args.in[static_cast<size_t>(i)]);
    };
    const std::byte *pa = in(a), *pb = in(b), *pc = in(residual);
    auto d = static_cast<std::byte*>(args.out[0]);
    const void* pbias = bias_packed ? bias_packed->get() : in(bias);
    if (ragged) return ragged->run(pa, pb, d, pbias, args.scratch, stream);
    std::byte* workspace = static_cast<std::byte*>(args.scratch);
    if (zero_bytes > 0) {  // a sum over nothing: one term of zeros
      pa = pb = workspace + call->workspace_bytes();
      PELTON_CUDA(
          cudaMemsetAsync(workspace + call->workspace_bytes(), 0, static_cast<size_t>(zero_bytes), stream));
    }
    walk(0, pa, pb, pc, d, pbias, workspace, stream);
    ApplySteps steps = behind;
    steps.y = d;
    PELTON_CUDA(apply_steps(steps, stream));
  }

  int a = -1, b = -1, bias = -1, residual = -1;
  std::shared_ptr<const DeviceBuffer> bias_packed;
  std::vector<Batch> outer;          // loops around the call; bytes between batches
  std::unique_ptr<MatmulCall> call;  // or
  std::unique_ptr<RaggedProduct> ragged;
  ApplySteps behind;  // an activation that the call does not apply
  int64_t zero_bytes = 0;
  int64_t in_bytes = 4, out_bytes = 4;

 private:
  const DeviceBuffer* packed_b() const { return ragged ? ragged->packed_b() : nullptr; }
  void walk(size_t level, const std::byte* pa, const std::byte* pb, const std::byte* pc, std::byte* d,
            const void* pbias, std::byte* workspace, cudaStream_t stream) const {
    if (level == outer.size()) {
      call->run(pa, pb, pc, d, pbias, workspace, stream);
      return;
    }
    const Batch& loop = outer[level];
    for (int64_t i = 0; i < loop.count; ++i)
      walk(level + 1, pa + i * loop.a * in_bytes, pb + i * loop.b * in_bytes,
           pc ? pc + i * loop.d * out_bytes : nullptr, d + i * loop.d * out_bytes, pbias, workspace, stream);
  }
};

// The activation of a problem as a kernel of its own over `count` results.
ApplySteps activation_of(const MatmulProblem& p, int64_t count) {
  ApplySteps out;
  out.type = elem(p.out);
  out.channels_last = true;
  out.n = 1;
  out.c = static_cast<int>(p.n);
  out.places = count / p.n;
  out.epilogue.count = 1;
  out.epilogue.steps[0].op = p.activation == Activation::relu ? EpilogueStep::relu : EpilogueStep::gelu_tanh;
  return out;
}

std::shared_ptr<const DeviceBuffer> bias_as(const Tensor& constant, DType to) {
  return shared_packed(constant, cat("vector ", name(to)), [&] {
    Tensor t = from_doubles(to, {constant.count()}, to_doubles(constant));
    return upload(t, "a bias");
  });
}

std::unique_ptr<Kernel> prepare(const Instance& instance, const device::Target& target) {
  const Group group = parse_group(instance.graph, instance.id, &instance);
  PELTON_CHECK(group.reason.empty(), group.reason);
  const Epilogue e = epilogue_of(group, instance.graph, instance.id);
  PELTON_CHECK(e.reason.empty(), e.reason);
  const ir::Node& n = group.node();
  auto kernel = std::make_unique<MatmulKernel>();
  Matrix a = matrix_of(dims_of(group.operands[0], instance), true, n.get_bool("transpose_a"));
  Matrix b = matrix_of(dims_of(group.operands[1], instance), false, n.get_bool("transpose_b"));
  kernel->a = group.operands[0].input;
  kernel->b = group.operands[1].input;
  PELTON_CHECK(kernel->a >= 0 && kernel->b >= 0, "a matrix inside a group");
  MatmulProblem p;
  p.in = group.graph->type(n.inputs[0]).dtype;
  p.out = group.result;
  p.m = a.transposed ? a.columns : a.rows;
  p.k = a.transposed ? a.rows : a.columns;
  p.n = b.transposed ? b.rows : b.columns;
  p.transpose_a = a.transposed;
  p.transpose_b = b.transposed;
  p.alpha = e.alpha;
  p.activation = e.activation;
  p.tf32 = target.tf32;
  kernel->in_bytes = bits(p.in) / 8;
  kernel->out_bytes = bits(p.out) / 8;
  // One right operand for all batches: the batches are more rows.
  if (element_count(b.batch) == 1 && !a.transposed) {
    p.m *= element_count(a.batch);
    a.batch.clear();
    b.batch.clear();
  }
  std::vector<Batch> batches = batches_of(a, b, p.m * p.n);
  for (const Batch& batch : batches)
    if (batch.count == 0) return kernel;
  if (p.m == 0 || p.n == 0) return kernel;
  int64_t results = p.m * p.n;
  for (const Batch& batch : batches) results *= batch.count;
  if (p.k == 0) {
    // One term of zeros, the same for all batches.
    p.k = 1;
    kernel->zero_bytes = std::max(p.m, p.n) * kernel->in_bytes;
    for (Batch& batch : batches) batch.a = batch.b = 0;
  }
  if (!batches.empty()) {
    const Batch& inner = batches.back();
    p.batch = inner.count;
    p.stride_a = inner.a;
    p.stride_b = inner.b;
    p.stride_d = inner.d;
    batches.pop_back();
  }
  kernel->outer = std::move(batches);
  if (e.bias) {
    p.bias = true;
    kernel->bias = e.bias->input;
    if (e.bias->constant.defined()) {
      kernel->bias = -1;
      kernel->bias_packed = bias_as(e.bias->constant, p.out);
    }
  }
  if (e.residual) {
    p.residual = true;
    kernel->residual = e.residual->input;
  }
  if (kernel->outer.empty() && kernel->zero_bytes == 0)
    kernel->ragged = RaggedProduct::make(p, instance.constants[static_cast<size_t>(kernel->b)]);
  if (kernel->ragged) return kernel;
  kernel->call = MatmulCall::make(p);
  if (!kernel->call && p.activation != Activation::none) {
    kernel->behind = activation_of(p, results);
    p.activation = Activation::none;
    kernel->call = MatmulCall::make(p);
  }
  if (!kernel->call) fail(ErrorCode::driver, cat("cuBLASLt has no way to compute ", p.key()));
  return kernel;
}

}  // namespace

void add_contraction(Registry& registry) {
  Implementation i;
  i.name = "cublaslt.matmul";
  i.ops = {"matmul", "fused"};
  i.refuse = refuse;
  i.prepare = prepare;
  i.device = device::Kind::cuda;
  registry.add(std::move(i));
}

}  // namespace pelton::backend::cuda
