// SPDX-License-Identifier: Apache-2.0
#include "backend/cpu/harness.h"

#include <doctest/doctest.h>

#include <cmath>
#include <cstring>

#include "backend/cpu/harness_naive.h"
#include "backend/cpu/register.h"
#include "ir/text.h"

namespace pelton::test {
namespace {

using namespace pelton::ir;

NodeId only_node(const Graph& g) {
  NodeId found;
  for (NodeId id : g.order())
    if (!g[id].is("constant")) {
      PELTON_CHECK(!found, "more than one node");
      found = id;
    }
  PELTON_CHECK(found, "no node");
  return found;
}

std::string replace_all(std::string text, const std::string& from, const std::string& to) {
  for (size_t at = 0; (at = text.find(from, at)) != text.npos; at += to.size())
    text.replace(at, from.size(), to);
  return text;
}
Tensor widened(const Tensor& t) {
  return is_float(t.dtype()) ? from_doubles(DType::f64, t.dims(), to_doubles(t)) : t;
}

std::vector<Tensor> interpret(const Graph& g, const std::vector<Tensor>& inputs) {
  std::vector<HostValue> values(inputs.begin(), inputs.end());
  std::vector<Tensor> out;
  for (const HostValue& v : interp::run(g, values).outputs) out.push_back(v.tensor);
  return out;
}

// Offset in a layout of a logical index.
int64_t physical_offset(const Dims& index, const Dims& dims, const Layout& layout) {
  if (layout.is_plain() || dims.size() < 2) {
    int64_t at = 0;
    for (size_t d = 0; d < dims.size(); ++d) at = at * dims[d] + index[d];
    return at;
  }
  const bool blocked = layout.kind == Layout::Kind::blocked;
  const int64_t block = blocked ? layout.block : 1;
  int64_t at = index[0];
  if (blocked) at = at * ((dims[1] + block - 1) / block) + index[1] / block;
  for (size_t d = 2; d < dims.size(); ++d) at = at * dims[d] + index[d];
  return blocked ? at * block + index[1] % block : at * dims[1] + index[1];
}

}  // namespace

const backend::Registry& cpu_registry() {
  static const backend::Registry* registry = [] {
    auto* r = new backend::Registry;
    backend::register_cpu(*r);
    return r;
  }();
  return *registry;
}

Tensor to_layout(const Tensor& plain, const Layout& layout) {
  if (layout.is_plain()) return plain;
  const Type type{TypeKind::tensor, plain.dtype(), true, to_shape(plain.dims()), layout, {}, {}};
  Tensor out = Tensor::zeros(DType::u8, {physical_bytes(type, plain.dims())});
  const auto width = static_cast<size_t>(bits(plain.dtype()) / 8);
  auto* to = static_cast<char*>(out.mutable_data());
  each_index(plain.dims(), [&](int64_t i, const Dims& index) {
    std::memcpy(to + static_cast<size_t>(physical_offset(index, plain.dims(), layout)) * width,
                static_cast<const char*>(plain.data()) + static_cast<size_t>(i) * width, width);
  });
  return out;
}

Tensor from_layout(const void* bytes, DType dtype, const Dims& dims, const Layout& layout) {
  Tensor out(dtype, dims);
  const auto width = static_cast<size_t>(bits(dtype) / 8);
  auto* to = static_cast<char*>(out.mutable_data());
  each_index(dims, [&](int64_t i, const Dims& index) {
    std::memcpy(
        to + static_cast<size_t>(i) * width,
        static_cast<const char*>(bytes) + static_cast<size_t>(physical_offset(index, dims, layout)) * width,
        width);
  });
  return out;
}

std::string refusal(const Graph& graph, const std::string& implementation) {
  const backend::Implementation* found = cpu_registry().find(implementation);
  PELTON_CHECK(found, implementation);
  return found->refuse(graph, only_node(graph), device::detect_cpu());
}

std::vector<Tensor> run_on_cpu(const Graph& graph, const std::vector<Tensor>& inputs,
                               const Options& options) {
  const NodeId id = only_node(graph);
  const Node& node = graph[id];
  const device::Target target = device::detect_cpu();
  SymbolValues symbols;
  std::vector<Tensor> values(graph.value_count());
  for (size_t i = 0; i < inputs.size(); ++i) {
    values[graph.inputs[i].index] = inputs[i];
    interp::bind_symbols(graph.type(graph.inputs[i]), inputs[i].dims(), symbols, "input");
  }
  std::vector<bool> constant(node.inputs.size(), false);
  for (size_t i = 0; i < node.inputs.size(); ++i) {
    if (!node.inputs[i]) continue;
    if (const Tensor* t = graph.constant(node.inputs[i])) {
      values[node.inputs[i].index] = *t;
      constant[i] = true;
    } else if (i < options.constant.size()) {
      constant[i] = options.constant[i];
    }
  }
  std::vector<Tensor> expected = interpret(graph, inputs);

  backend::Instance instance{graph, id, {}, {}, {}, symbols, target.threads};
  std::vector<Tensor> physical;
  std::vector<const void*> in;
  for (size_t i = 0; i < node.inputs.size(); ++i) {
    const ValueId v = node.inputs[i];
    if (!v) {
      instance.inputs.push_back({});
      instance.constants.push_back({});
      physical.push_back({});
      in.push_back(nullptr);
      continue;
    }
    const Tensor& t = values[v.index];
    instance.inputs.push_back({t.dtype(), t.dims(), graph.type(v).layout});
    instance.constants.push_back(constant[i] ? t : Tensor());
    physical.push_back(to_layout(t, graph.type(v).layout));
    in.push_back(physical.back().data());
  }
  std::vector<Tensor> buffers;
  std::vector<void*> out;
  for (size_t i = 0; i < node.outputs.size(); ++i) {
    const Type& type = graph.type(node.outputs[i]);
    // A result that the graph drops has the dims of its type.
    Dims dims =
        type.shape.empty() && i < expected.size() ? expected[i].dims() : pelton::eval(type.shape, symbols);
    for (size_t k = 0; k < graph.outputs.size(); ++k)
      if (graph.outputs[k] == node.outputs[i]) dims = expected[k].dims();
    instance.outputs.push_back({type.dtype, dims, type.layout});
    Tensor bytes(DType::u8, {instance.outputs.back().bytes()});
    if (bytes.count()) std::memset(bytes.mutable_data(), 0xAB, static_cast<size_t>(bytes.bytes()));
    buffers.push_back(bytes);
    out.push_back(buffers.back().mutable_data());
  }
  const backend::Implementation* chosen = nullptr;
  std::string reasons;
  for (const backend::Implementation* item : cpu_registry().candidates(node.op->name)) {
    if (!options.implementation.empty() && item->name != options.implementation) continue;
    std::string why = item->refuse(graph, id, target);
    if (why.empty()) {
      chosen = item;
      break;
    }
    reasons += cat(item->name, ": ", why, "; ");
  }
  CAPTURE(reasons);
  REQUIRE(chosen);
  std::unique_ptr<backend::Kernel> kernel = chosen->prepare(instance, target);
  Tensor scratch(DType::u8, {kernel->scratch_bytes()});
  if (options.scratch_bytes) *options.scratch_bytes = kernel->scratch_bytes();
  if (scratch.count()) std::memset(scratch.mutable_data(), 0xCD, static_cast<size_t>(scratch.bytes()));
  kernel->run({in, out, scratch.count() ? scratch.mutable_data() : nullptr, {}});
  std::vector<Tensor> results;
  for (ValueId wanted : graph.outputs)
    for (size_t i = 0; i < node.outputs.size(); ++i)
      if (node.outputs[i] == wanted)
        results.push_back(from_layout(buffers[i].data(), instance.outputs[i].dtype, instance.outputs[i].dims,
                                      instance.outputs[i].layout));
  return results;
}

double ulp(double value, DType dtype) {
  int mantissa = 23, lowest_exponent = -126;
  if (dtype == DType::f16) mantissa = 10, lowest_exponent = -14;
  if (dtype == DType::bf16) mantissa = 7;
  if (dtype == DType::f64) mantissa = 52, lowest_exponent = -1022;
  int exponent = lowest_exponent;
  if (value != 0 && std::isfinite(value)) exponent = std::max(lowest_exponent, std::ilogb(value));
  return std::ldexp(1.0, exponent - mantissa);
}

void check_accepted(const Tensor& kernel, const Tensor& oracle, const Tensor& naive, Measure measure) {
  REQUIRE(kernel.dims() == oracle.dims());
  REQUIRE(naive.dims() == oracle.dims());
  if (!is_float(kernel.dtype())) {
    CHECK(to_ints(kernel) == to_ints(naive));
    return;
  }
  const std::vector<double> k = to_doubles(kernel), o = to_doubles(oracle), n = to_doubles(naive);
  double largest = 0, worst_naive = 0, worst = 0;
  size_t where = 0;
  for (double v : o)
    if (std::isfinite(v)) largest = std::max(largest, std::abs(v));
  auto unit = [&](double v) { return ulp(measure == Measure::ulp ? v : largest, kernel.dtype()); };
  int wrong_specials = 0;
  for (size_t i = 0; i < o.size(); ++i) {
    if (!std::isfinite(n[i])) {
      // Overflow and NaN must agree with the straightforward evaluation.
      if (!(std::isnan(n[i]) ? std::isnan(k[i]) : k[i] == n[i]) && wrong_specials++ == 0) where = i;
      continue;
    }
    worst_naive = std::max(worst_naive, std::abs(n[i] - o[i]) / unit(o[i]));
    const double error = std::abs(k[i] - o[i]) / unit(o[i]);
    if (!(error <= worst)) {  // a NaN counts
      worst = error;
      if (!wrong_specials) where = i;
    }
  }
  CAPTURE(where);
  CAPTURE(o.empty() ? 0 : o[where]);
  CAPTURE(k.empty() ? 0 : k[where]);
  CAPTURE(n.empty() ? 0 : n[where]);
  CHECK(wrong_specials == 0);
  CHECK(worst <= 2 * worst_naive + 1);
}

void check_node(const std::string& text, const std::vector<Tensor>& inputs, const Options& options,
                Measure measure) {
  CAPTURE(text);
  const Graph graph = parse_graph(text);
  const std::vector<Tensor> kernel = run_on_cpu(graph, inputs, options);
  // Layouts do not change values; the oracle's text has none.
  std::string wide = text;
  for (const char* small : {"bf16", "f16", "f32"}) wide = replace_all(wide, small, "f64");
  std::vector<Tensor> wide_inputs;
  for (const Tensor& t : inputs) wide_inputs.push_back(widened(t));
  const std::vector<Tensor> naive = step_by_step(graph, inputs);
  const std::vector<Tensor> oracle = options.exact ? naive : interpret(parse_graph(wide), wide_inputs);
  REQUIRE(kernel.size() == oracle.size());
  for (size_t i = 0; i < kernel.size(); ++i) check_accepted(kernel[i], oracle[i], naive[i], measure);
}

Tensor random(DType dtype, Dims dims, uint64_t seed, double low, double high) {
  Tensor t(dtype, std::move(dims));
  uint64_t state = seed * 0x9E3779B97F4A7C15u + 0x1234567;
  for (int64_t i = 0; i < t.count(); ++i) {
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    const double unit = static_cast<double>(state >> 11) * 0x1p-53;
    const double v = low + (high - low) * unit;
    if (is_float(dtype))
      t.set_double(i, v);
    else
      t.set_int(i, static_cast<int64_t>(std::floor(v)));
  }
  return t;
}

}  // namespace pelton::test
