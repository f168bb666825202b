// SPDX-License-Identifier: Apache-2.0
#include "backend/cpu/harness_naive.h"

#include <algorithm>

namespace pelton::test {

using namespace pelton::ir;

namespace {

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

}  // namespace

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

}  // namespace pelton::test
