// SPDX-License-Identifier: Apache-2.0
#include "backend/cpu/harness.h"

#include <doctest/doctest.h>

#include <cmath>
#include <cstring>
#include <optional>

#include "backend/cpu/register.h"
#include "ir/builder.h"
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

template <class F>
void each_index(const Dims& dims, F f) {
  Dims index(dims.size(), 0);
  for (int64_t i = 0, n = element_count(dims); i < n; ++i) {
    f(i, index);
    for (size_t d = dims.size(); d-- > 0;) {
      if (++index[d] < dims[d]) break;
      index[d] = 0;
    }
  }
}

// Sums in f32, in order: what "straightforward" means for contractions and reductions of floats. `term(k)`
// yields both factors.
template <class F>
float sum_f32(int64_t count, F term) {
  float sum = 0;
  for (int64_t k = 0; k < count; ++k) {
    auto [a, b] = term(k);
    sum += static_cast<float>(a) * static_cast<float>(b);
  }
  return sum;
}
Dims axes_without(const Dims& dims, const Ints& axes) {
  Dims out = dims;
  for (int64_t a : axes) out[static_cast<size_t>(a < 0 ? a + static_cast<int64_t>(dims.size()) : a)] = 1;
  return out;
}
// A matmul operand as [B..., rows, columns].
std::pair<Tensor, Dims> as_matrix(const Tensor& t, bool left, bool flip) {
  Dims d = t.dims();
  if (d.size() == 1) d.insert(left ? d.begin() : d.end(), 1);
  if (!flip || t.rank() == 1) return {t, d};
  const int64_t rows = d[d.size() - 2], columns = d.back(),
                batch = t.count() / std::max<int64_t>(1, rows * columns);
  std::vector<double> v = to_doubles(t), w(v.size());
  for (int64_t b = 0; b < batch; ++b)
    for (int64_t r = 0; r < rows; ++r)
      for (int64_t c = 0; c < columns; ++c)
        w[static_cast<size_t>((b * columns + c) * rows + r)] =
            v[static_cast<size_t>((b * rows + r) * columns + c)];
  std::swap(d[d.size() - 2], d[d.size() - 1]);
  return {from_doubles(t.dtype(), d, w), d};
}
std::optional<Tensor> naive_matmul(const Graph& g, NodeId id, const std::vector<HostValue>& in) {
  const Node& n = g[id];
  const DType t = in[0].tensor.dtype();
  auto [a, ad] = as_matrix(in[0].tensor, true, n.get_bool("transpose_a"));
  auto [b, bd] = as_matrix(in[1].tensor, false, n.get_bool("transpose_b"));
  const std::vector<double> av = to_doubles(a), bv = to_doubles(b);
  const int64_t m = ad[ad.size() - 2], k = ad.back(), c = bd.back();
  Dims ab(ad.begin(), ad.end() - 2), bb(bd.begin(), bd.end() - 2);
  const size_t rank = std::max(ab.size(), bb.size());
  ab.insert(ab.begin(), rank - ab.size(), 1);
  bb.insert(bb.begin(), rank - bb.size(), 1);
  Dims batch(rank);
  for (size_t d = 0; d < rank; ++d) batch[d] = ab[d] == 1 ? bb[d] : ab[d];
  std::vector<double> out;
  each_index(batch, [&](int64_t, const Dims& index) {
    int64_t ai = 0, bi = 0;
    for (size_t d = 0; d < rank; ++d) {
      ai = ai * ab[d] + (ab[d] == 1 ? 0 : index[d]);
      bi = bi * bb[d] + (bb[d] == 1 ? 0 : index[d]);
    }
    for (int64_t r = 0; r < m; ++r)
      for (int64_t j = 0; j < c; ++j)
        out.push_back(sum_f32(k, [&](int64_t i) {
          return std::pair(av[static_cast<size_t>((ai * m + r) * k + i)],
                           bv[static_cast<size_t>((bi * k + i) * c + j)]);
        }));
  });
  Dims y = batch;
  if (in[0].tensor.rank() > 1) y.push_back(m);
  if (in[1].tensor.rank() > 1) y.push_back(c);
  return from_doubles(t, y, out);
}
// Every output of conv and conv_transpose as the f32 sum over the taps that meet it.
std::optional<Tensor> naive_conv(const Graph& g, NodeId id, const std::vector<HostValue>& in, const Dims& y) {
  const Node& n = g[id];
  const Tensor &x = in[0].tensor, &w = in[1].tensor;
  const bool transposed = n.is("conv_transpose");
  const size_t spatial = y.size() - 2;
  auto ints = [&](const char* name) {
    Dims v = n.get_ints(name);
    return v.empty() ? Dims(spatial, 1) : v;
  };
  const Dims strides = ints("strides"), dilations = ints("dilations");
  Dims low = pelton::eval(n.get_dims("low"), {});
  if (low.empty()) low.assign(spatial, 0);
  const int64_t groups = n.get_int("groups"), inputs = x.dims()[1] / groups, outputs = y[1] / groups;
  const Dims kernel(w.dims().begin() + 2, w.dims().end());
  const std::vector<double> xv = to_doubles(x), wv = to_doubles(w);
  std::vector<double> bias;
  if (in.size() > 2 && in[2].tensor.defined()) bias = to_doubles(in[2].tensor);
  const int64_t taps = element_count(kernel),
                area = element_count(Dims(x.dims().begin() + 2, x.dims().end()));
  std::vector<double> out;
  each_index(y, [&](int64_t, const Dims& o) {
    const int64_t group = o[1] / outputs;
    float sum = 0;
    for (int64_t c = 0; c < inputs; ++c)
      each_index(kernel, [&](int64_t tap, const Dims& k) {
        int64_t at = 0;
        for (size_t d = 0; d < spatial; ++d) {
          int64_t i = transposed ? o[d + 2] + low[d] - k[d] * dilations[d]
                                 : o[d + 2] * strides[d] - low[d] + k[d] * dilations[d];
          if (transposed && (i < 0 || i % strides[d] != 0)) return;
          if (transposed) i /= strides[d];
          if (i < 0 || i >= x.dims()[d + 2]) return;
          at = at * x.dims()[d + 2] + i;
        }
        const int64_t channel = group * inputs + c;
        const int64_t wi =
            transposed ? (channel * outputs + o[1] % outputs) * taps + tap : (o[1] * inputs + c) * taps + tap;
        sum += static_cast<float>(xv[static_cast<size_t>((o[0] * x.dims()[1] + channel) * area + at)]) *
               static_cast<float>(wv[static_cast<size_t>(wi)]);
      });
    if (!bias.empty()) sum += static_cast<float>(bias[static_cast<size_t>(o[1])]);
    out.push_back(sum);
  });
  return from_doubles(x.dtype(), y, out);
}
std::optional<Tensor> naive_sum(const Graph& g, NodeId id, const Tensor& x, const Dims& y) {
  const Node& n = g[id];
  const Dims kept = axes_without(x.dims(), n.get_ints("axes"));
  const std::vector<int64_t> strides = row_major_strides(kept);
  const std::vector<double> v = to_doubles(x);
  std::vector<float> sums(static_cast<size_t>(element_count(kept)), n.is("reduce_prod") ? 1.0f : 0.0f);
  each_index(x.dims(), [&](int64_t i, const Dims& index) {
    int64_t at = 0;
    for (size_t d = 0; d < index.size(); ++d) at += (kept[d] == 1 ? 0 : index[d]) * strides[d];
    float& sum = sums[static_cast<size_t>(at)];
    const auto value = static_cast<float>(v[static_cast<size_t>(i)]);
    sum = n.is("reduce_prod") ? sum * value : sum + value;
  });
  if (n.is("reduce_mean"))
    for (float& s : sums) s /= static_cast<float>(x.count() / std::max<int64_t>(1, element_count(kept)));
  return from_doubles(x.dtype(), y, {sums.begin(), sums.end()});
}
std::optional<Tensor> naive_avg_pool(const Node& n, const Tensor& x, const Dims& y) {
  const size_t spatial = y.size() - 2;
  auto filled = [&](Dims v, int64_t otherwise) { return v.empty() ? Dims(spatial, otherwise) : v; };
  const Dims kernel = n.get_ints("kernel"), strides = filled(n.get_ints("strides"), 1),
             low = filled(pelton::eval(n.get_dims("low"), {}), 0),
             high = filled(pelton::eval(n.get_dims("high"), {}), 0);
  const std::vector<double> v = to_doubles(x);
  const std::vector<int64_t> s = row_major_strides(x.dims());
  std::vector<double> out;
  each_index(y, [&](int64_t, const Dims& o) {
    float sum = 0;
    int64_t inside = 0, counted = 0;
    each_index(kernel, [&](int64_t, const Dims& k) {
      int64_t at = o[0] * s[0] + o[1] * s[1];
      bool in_data = true, in_padding = true;
      for (size_t d = 0; d < spatial; ++d) {
        const int64_t i = o[d + 2] * strides[d] - low[d] + k[d];
        in_data &= i >= 0 && i < x.dims()[d + 2];
        in_padding &= i < x.dims()[d + 2] + high[d];
        at += i * s[d + 2];
      }
      if (in_data) sum += static_cast<float>(v[static_cast<size_t>(at)]);
      inside += in_data;
      counted += in_padding;
    });
    out.push_back(sum / static_cast<float>(n.get_bool("count_padding") ? counted : inside));
  });
  return from_doubles(x.dtype(), y, out);
}
std::optional<Tensor> naive(const Graph& g, NodeId id, const std::vector<HostValue>& in,
                            const SymbolValues& symbols) {
  const Node& n = g[id];
  if (n.inputs.empty() || !n.inputs[0]) return {};
  const DType t = in[0].tensor.dtype();
  if (t != DType::f32 && t != DType::bf16 && t != DType::f16) return {};
  if (n.is("matmul")) return naive_matmul(g, id, in);
  const Type& y = g.type(n.outputs[0]);
  if (n.is("conv") || n.is("conv_transpose")) return naive_conv(g, id, in, pelton::eval(y.shape, symbols));
  if (n.is("avg_pool")) return naive_avg_pool(n, in[0].tensor, pelton::eval(y.shape, symbols));
  if (n.is("reduce_sum") || n.is("reduce_mean") || n.is("reduce_prod"))
    return naive_sum(g, id, in[0].tensor, pelton::eval(y.shape, symbols));
  return {};
}

// Node by node in the graph's own types, composites through their decomposition.
std::vector<Tensor> step_by_step(const Graph& g, const std::vector<Tensor>& inputs);

std::vector<HostValue> evaluate(const Graph& g, NodeId id, const std::vector<HostValue>& in,
                                const SymbolValues& symbols) {
  const Node& n = g[id];
  if (n.is("fused")) {
    std::vector<Tensor> tensors;
    for (const HostValue& v : in) tensors.push_back(v.tensor);
    std::vector<Tensor> out = step_by_step(n.get_graph("body"), tensors);
    return {out.begin(), out.end()};
  }
  if (std::optional<Tensor> t = naive(g, id, in, symbols)) return {*t};
  if (n.op->decompose && !n.is("fused")) {
    Graph small;
    std::vector<HostValue> given;
    std::vector<ValueId> args;
    for (size_t i = 0; i < n.inputs.size(); ++i) {
      if (!n.inputs[i]) {
        args.push_back({});
        continue;
      }
      args.push_back(small.add_input(Type::tensor(in[i].tensor.dtype(), to_shape(in[i].tensor.dims()))));
      given.push_back(in[i]);
    }
    NodeId copy = small.add_node(*n.op, args, n.attrs, n.outputs.size());
    infer(small, copy);
    Builder b(small, copy);
    const Node node = small[copy];  // the arena may move while nodes are added
    small.outputs = n.op->decompose(b, node);
    small.remove(copy);
    std::vector<Tensor> tensors;
    for (const HostValue& v : given) tensors.push_back(v.tensor);
    if (!small.outputs.empty()) {
      std::vector<Tensor> out = step_by_step(small, tensors);
      return {out.begin(), out.end()};
    }
  }
  interp::Options options;
  options.symbols = symbols;
  return interp::run_node(g, id, in, options);
}

std::vector<Tensor> step_by_step(const Graph& g, const std::vector<Tensor>& inputs) {
  std::vector<HostValue> values(g.value_count());
  SymbolValues symbols;
  for (size_t i = 0; i < g.inputs.size(); ++i) {
    values[g.inputs[i].index] = inputs[i];
    interp::bind_symbols(g.type(g.inputs[i]), inputs[i].dims(), symbols, "input");
  }
  for (NodeId id : g.order()) {
    std::vector<HostValue> in;
    for (ValueId v : g[id].inputs) in.push_back(v ? values[v.index] : HostValue());
    std::vector<HostValue> out = evaluate(g, id, in, symbols);
    for (size_t k = 0; k < g[id].outputs.size(); ++k) values[g[id].outputs[k].index] = out[k];
  }
  std::vector<Tensor> out;
  for (ValueId v : g.outputs) out.push_back(values[v.index].tensor);
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
