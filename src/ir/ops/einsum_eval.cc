// SPDX-License-Identifier: Apache-2.0
// For every output element: the sum over the labels that it lacks of the product of the operands, in f64 or
// in wrapping 64-bit integers.
#include <algorithm>

#include "ir/ops/common.h"
#include "ir/ops/einsum.h"

namespace pelton::ir {
namespace {

template <class T>
std::vector<T> wide(const Tensor& t) {
  if constexpr (std::is_same_v<T, double>) {
    return to_doubles(t);
  } else {
    std::vector<int64_t> v = to_ints(t);
    return std::vector<T>(v.begin(), v.end());
  }
}

// Step of each label in each operand, in elements; 0 where the operand lacks it or repeats along it.
struct Walk {
  Dims out, summed;
  std::vector<Dims> out_steps, summed_steps;  // one a operand
};

Walk walk(const EvalContext& c, const Equation& e) {
  std::vector<int64_t> sizes(e.labels(), -1);  // -1: not met yet
  for (size_t i = 0; i < c.inputs.size(); ++i)
    for (size_t d = 0; d < e.operands[i].size(); ++d) {
      size_t label = e.operands[i][d];
      int64_t size = c.in(i).dims()[d], &known = sizes[label];
      if (known == -1 || (e.spread[label] && known == 1))
        known = size;
      else if (size != known && !(e.spread[label] && size == 1))
        c.refuse(ErrorCode::bad_shape, cat("has sizes ", known, " and ", size, " for one label"));
    }
  Walk w;
  std::vector<size_t> summed;
  for (size_t label = 0; label < e.labels(); ++label)
    if (std::find(e.output.begin(), e.output.end(), label) == e.output.end()) summed.push_back(label);
  for (size_t label : e.output) w.out.push_back(sizes[label]);
  for (size_t label : summed) w.summed.push_back(sizes[label]);
  for (size_t i = 0; i < c.inputs.size(); ++i) {
    Dims strides = row_major_strides(c.in(i).dims()), steps(e.labels(), 0);
    for (size_t d = 0; d < strides.size(); ++d)
      if (c.in(i).dims()[d] != 1) steps[e.operands[i][d]] += strides[d];  // repeated labels: the diagonal
    Dims& out = w.out_steps.emplace_back();
    for (size_t label : e.output) out.push_back(steps[label]);
    Dims& rest = w.summed_steps.emplace_back();
    for (size_t label : summed) rest.push_back(steps[label]);
  }
  return w;
}

template <class T>
std::vector<T> sums(const EvalContext& c, const Walk& w) {
  std::vector<std::vector<T>> x;
  for (const HostValue& v : c.inputs) x.push_back(wide<T>(v.tensor));
  std::vector<T> out;
  std::vector<int64_t> base(x.size());
  auto dot = [](const Dims& index, const Dims& steps) {
    int64_t at = 0;
    for (size_t d = 0; d < index.size(); ++d) at += index[d] * steps[d];
    return at;
  };
  for_each_index(w.out, [&](const Dims& index) {
    for (size_t i = 0; i < x.size(); ++i) base[i] = dot(index, w.out_steps[i]);
    T sum = 0;
    for_each_index(w.summed, [&](const Dims& inner) {
      T product = 1;
      for (size_t i = 0; i < x.size(); ++i)
        product *= x[i][static_cast<size_t>(base[i] + dot(inner, w.summed_steps[i]))];
      sum += product;
    });
    out.push_back(sum);
  });
  return out;
}

}  // namespace

void eval_einsum(EvalContext& c) {
  std::vector<size_t> ranks;
  for (const HostValue& v : c.inputs) ranks.push_back(v.tensor.dims().size());
  Walk w = walk(c, parse_equation(c.node.get_text("equation"), ranks));
  DType t = c.in(0).dtype();
  if (is_float(t)) {
    c.out(0, from_doubles(t, w.out, sums<double>(c, w)));
  } else {
    std::vector<uint64_t> v = sums<uint64_t>(c, w);
    c.out(0, from_ints(t, w.out, std::vector<int64_t>(v.begin(), v.end())));
  }
}

}  // namespace pelton::ir
