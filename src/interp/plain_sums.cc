// SPDX-License-Identifier: Apache-2.0
#include "interp/plain_sums.h"

#include "ir/op.h"
#include "ir/ops/window.h"

namespace pelton::interp {

using namespace ir;

namespace {

// A sum of `count` terms; term(i) for i in order, each operation rounded to T.
template <class T, class F>
T sum(int64_t count, Order order, F&& term) {
  T acc = 0;
  for (int64_t i = 0; i < count; ++i) acc += term(order == Order::forward ? i : count - 1 - i);
  return acc;
}

template <class T>
class Plain {
 public:
  Plain(const EvalContext& c, DType to, Order order) : c_(c), to_(to), order_(order) {}

  std::optional<Tensor> run() {
    std::string_view op = c_.node.op->name;
    if (op == "matmul") return matmul();
    if (op == "conv") return conv();
    if (op == "conv_transpose") return conv_transpose();
    if (op == "avg_pool") return avg_pool();
    if (op == "cumsum") return cumsum();
    if (op == "reduce_sum" || op == "reduce_mean" || op == "reduce_prod") return reduce(op);
    return std::nullopt;
  }

 private:
  std::vector<T> load(size_t i) const {
    std::vector<double> v = to_doubles(c_.in(i));
    return std::vector<T>(v.begin(), v.end());
  }
  Tensor store(const Dims& dims, const std::vector<T>& v) const {
    return from_doubles(to_, dims, std::vector<double>(v.begin(), v.end()));
  }

  Tensor matmul() const {
    Dims a = c_.in(0).dims(), b = c_.in(1).dims();
    bool ta = c_.node.get_bool("transpose_a"), tb = c_.node.get_bool("transpose_b");
    bool row = a.size() == 1, column = b.size() == 1;
    if (row) a.insert(a.begin(), 1);
    if (column) b.push_back(1);
    size_t ra = a.size(), rb = b.size();
    int64_t m = ta ? a[ra - 1] : a[ra - 2], k = ta ? a[ra - 2] : a[ra - 1], n = tb ? b[rb - 2] : b[rb - 1];
    std::vector<T> x = load(0), y = load(1), out;
    Dims batch_a(a.begin(), a.end() - 2), batch_b(b.begin(), b.end() - 2),
        batch = broadcast_dims({batch_a, batch_b});
    Dims sa = row_major_strides(batch_a), sb = row_major_strides(batch_b);
    for_each_index(batch, [&](const Dims& index) {
      const T* left = x.data() + broadcast_offset(index, batch_a, sa) * m * k;
      const T* right = y.data() + broadcast_offset(index, batch_b, sb) * k * n;
      for (int64_t i = 0; i < m; ++i)
        for (int64_t j = 0; j < n; ++j)
          out.push_back(sum<T>(k, order_, [&](int64_t p) {
            return left[ta ? p * m + i : i * k + p] * right[tb ? j * k + p : p * n + j];
          }));
    });
    if (!row) batch.push_back(m);
    if (!column) batch.push_back(n);
    return store(batch, out);
  }

  Tensor conv() const {
    const Dims &x_dims = c_.in(0).dims(), &w_dims = c_.in(1).dims();
    ConcreteWindow window = concrete_window(c_, Dims(w_dims.begin() + 2, w_dims.end()));
    Dims spatial(x_dims.begin() + 2, x_dims.end()), to{x_dims[0], w_dims[0]},
        strides = row_major_strides(spatial);
    for (size_t d = 0; d < spatial.size(); ++d) to.push_back(window.out_size(d, spatial[d]));
    std::vector<T> x = load(0), w = load(1), bias = c_.has(2) ? load(2) : std::vector<T>(), out;
    int64_t depth = w_dims[1], taps = element_count(window.kernel), pixels = element_count(spatial);
    int64_t out_group = w_dims[0] / c_.node.get_int("groups");
    Dims tap_strides = row_major_strides(window.kernel);
    for_each_index(to, [&](const Dims& o) {
      int64_t first = o[1] / out_group * depth;
      T acc = sum<T>(depth * taps, order_, [&](int64_t term) -> T {
        int64_t channel = first + term / taps, tap = term % taps, at = (o[0] * x_dims[1] + channel) * pixels;
        for (size_t d = 0; d < spatial.size(); ++d) {
          int64_t position = window.position(d, o[d + 2], tap / tap_strides[d] % window.kernel[d]);
          if (position < 0 || position >= spatial[d]) return 0;
          at += position * strides[d];
        }
        return x[static_cast<size_t>(at)] * w[static_cast<size_t>(o[1] * depth * taps + term)];
      });
      out.push_back(bias.empty() ? acc : acc + bias[static_cast<size_t>(o[1])]);
    });
    return store(to, out);
  }

  // w[C,O/groups,K...]: each result sums over the places of x whose windows it lies in.
  Tensor conv_transpose() const {
    const Dims &x_dims = c_.in(0).dims(), &w_dims = c_.in(1).dims();
    ConcreteWindow window = concrete_window(c_, Dims(w_dims.begin() + 2, w_dims.end()));
    const int64_t groups = c_.node.get_int("groups"), depth = w_dims[0] / groups, each = w_dims[1];
    Dims spatial(x_dims.begin() + 2, x_dims.end()), strides = row_major_strides(spatial),
                                                    extra(spatial.size(), 0), to{x_dims[0], each * groups};
    if (const Dims& given = c_.node.get_ints("output_padding"); !given.empty()) extra = given;
    for (size_t d = 0; d < spatial.size(); ++d)
      to.push_back((spatial[d] - 1) * window.strides[d] + (window.kernel[d] - 1) * window.dilations[d] + 1 -
                   window.low[d] - window.high[d] + extra[d]);
    std::vector<T> x = load(0), w = load(1), bias = c_.has(2) ? load(2) : std::vector<T>(), out;
    const int64_t taps = element_count(window.kernel), pixels = element_count(spatial);
    Dims tap_strides = row_major_strides(window.kernel);
    for_each_index(to, [&](const Dims& o) {
      const int64_t first = o[1] / each * depth;
      T acc = sum<T>(depth * taps, order_, [&](int64_t term) -> T {
        int64_t channel = first + term / taps, tap = term % taps, at = (o[0] * x_dims[1] + channel) * pixels;
        for (size_t d = 0; d < spatial.size(); ++d) {
          const int64_t k = tap / tap_strides[d] % window.kernel[d];
          const int64_t from = o[d + 2] + window.low[d] - k * window.dilations[d];
          if (from < 0 || from % window.strides[d] != 0 || from / window.strides[d] >= spatial[d]) return 0;
          at += from / window.strides[d] * strides[d];
        }
        return x[static_cast<size_t>(at)] *
               w[static_cast<size_t>((channel * each + o[1] % each) * taps + tap)];
      });
      out.push_back(bias.empty() ? acc : acc + bias[static_cast<size_t>(o[1])]);
    });
    return store(to, out);
  }

  Tensor avg_pool() const {
    const Dims& dims = c_.in(0).dims();
    ConcreteWindow window = concrete_window(c_, c_.node.get_ints("kernel"));
    Dims spatial(dims.begin() + 2, dims.end()), to{dims[0], dims[1]}, strides = row_major_strides(spatial);
    for (size_t d = 0; d < spatial.size(); ++d)
      to.push_back(window.out_size(d, spatial[d], c_.node.get_bool("ceil")));
    const int64_t pixels = element_count(spatial);
    const bool count_padding = c_.node.get_bool("count_padding");
    std::vector<T> x = load(0), out;
    for_each_index(to, [&](const Dims& o) {
      // Taps outside add zeros, however many they are.
      Dims first(spatial.size()), inside(spatial.size());
      double count = 1;
      for (size_t d = 0; d < spatial.size(); ++d) {
        const auto taps = window.taps_inside(d, o[d + 2], spatial[d]);
        first[d] = taps.first;
        inside[d] = taps.last - taps.first;
        const int64_t padded = window.taps_inside(d, o[d + 2], spatial[d] + window.high[d]).last;
        count *= static_cast<double>(count_padding ? padded : inside[d]);
      }
      const Dims tap_strides = row_major_strides(inside);
      T acc = sum<T>(element_count(inside), order_, [&](int64_t tap) -> T {
        int64_t at = (o[0] * dims[1] + o[1]) * pixels;
        for (size_t d = 0; d < spatial.size(); ++d)
          at += window.position(d, o[d + 2], first[d] + tap / tap_strides[d] % inside[d]) * strides[d];
        return x[static_cast<size_t>(at)];
      });
      out.push_back(acc / static_cast<T>(count));
    });
    return store(to, out);
  }

  Tensor reduce(std::string_view op) const {
    const Dims& dims = c_.in(0).dims();
    Dims kept = dims, folded(dims.size(), 1), to, strides = row_major_strides(dims);
    std::vector<bool> gone(dims.size(), false);
    for (int64_t a : c_.node.get_ints("axes"))
      gone[static_cast<size_t>(a < 0 ? a + static_cast<int64_t>(dims.size()) : a)] = true;
    for (size_t d = 0; d < dims.size(); ++d) {
      if (gone[d]) std::swap(kept[d], folded[d]);
      if (!gone[d] || c_.node.get_bool("keep_dims")) to.push_back(kept[d]);
    }
    std::vector<int64_t> inner;
    for_each_index(folded, [&](const Dims& index) { inner.push_back(dot(index, strides)); });
    auto count = static_cast<int64_t>(inner.size());
    std::vector<T> x = load(0), out;
    for_each_index(kept, [&](const Dims& index) {
      int64_t base = dot(index, strides);
      auto at = [&](int64_t i) { return x[static_cast<size_t>(base + inner[static_cast<size_t>(i)])]; };
      if (op == "reduce_prod") {
        T acc = 1;
        for (int64_t i = 0; i < count; ++i) acc *= at(order_ == Order::forward ? i : count - 1 - i);
        out.push_back(acc);
      } else {
        T acc = sum<T>(count, order_, at);
        out.push_back(op == "reduce_mean" ? acc / static_cast<T>(count) : acc);
      }
    });
    return store(to, out);
  }

  // Every prefix is a sum of its own, so that both orders differ.
  Tensor cumsum() const {
    const Dims& dims = c_.in(0).dims();
    int64_t axis = c_.node.get_int("axis");
    auto a = static_cast<size_t>(axis < 0 ? axis + static_cast<int64_t>(dims.size()) : axis);
    bool exclusive = c_.node.get_bool("exclusive"), reverse = c_.node.get_bool("reverse");
    Dims strides = row_major_strides(dims);
    std::vector<T> x = load(0), out;
    for_each_index(dims, [&](const Dims& index) {
      int64_t base = dot(index, strides) - index[a] * strides[a];
      int64_t count = (reverse ? dims[a] - 1 - index[a] : index[a]) + !exclusive;
      out.push_back(sum<T>(count, order_, [&](int64_t i) {
        return x[static_cast<size_t>(base + (reverse ? dims[a] - 1 - i : i) * strides[a])];
      }));
    });
    return store(dims, out);
  }

  static int64_t dot(const Dims& index, const Dims& strides) {
    int64_t at = 0;
    for (size_t d = 0; d < index.size(); ++d) at += index[d] * strides[d];
    return at;
  }

  const EvalContext& c_;
  DType to_;
  Order order_;
};

}  // namespace

std::optional<Tensor> plain_sums(const Graph& graph, NodeId node, const std::vector<HostValue>& inputs,
                                 const SymbolValues& symbols, DType to, Arithmetic arithmetic, Order order) {
  if (inputs.empty() || !inputs[0].tensor.defined() || !is_float(inputs[0].tensor.dtype()) || !is_float(to))
    return std::nullopt;
  std::vector<HostValue> outputs(graph[node].outputs.size());
  const std::function<std::vector<HostValue>(const Graph&, std::vector<HostValue>)> no_bodies;
  EvalContext c{graph, graph[node], inputs, outputs, symbols, {}, no_bodies};
  switch (arithmetic) {
    case Arithmetic::f32:
      return Plain<float>(c, to, order).run();
    case Arithmetic::f64:
      return Plain<double>(c, to, order).run();
    case Arithmetic::extended:
      return Plain<long double>(c, to, order).run();
  }
  return std::nullopt;
}

}  // namespace pelton::interp
