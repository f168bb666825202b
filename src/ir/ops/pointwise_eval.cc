// SPDX-License-Identifier: Apache-2.0
#include "ir/ops/pointwise_eval.h"

#include <cmath>

#include "ir/ops/common.h"

namespace pelton::ir {
namespace {

// Applies f(offsets of the operands, result index) over the broadcast index space.
template <class F>
void over_broadcast(const std::vector<Dims>& operands, const Dims& out_dims, F&& f) {
  std::vector<Dims> strides;
  for (const Dims& d : operands) strides.push_back(row_major_strides(d));
  bool same = true;
  for (const Dims& d : operands) same &= d == out_dims;
  std::vector<int64_t> at(operands.size());
  if (same) {
    int64_t count = element_count(out_dims);
    for (int64_t i = 0; i < count; ++i) {
      at.assign(at.size(), i);
      f(at, i);
    }
    return;
  }
  int64_t i = 0;
  for_each_index(out_dims, [&](const Dims& index) {
    for (size_t k = 0; k < operands.size(); ++k) at[k] = broadcast_offset(index, operands[k], strides[k]);
    f(at, i++);
  });
}

std::vector<Dims> operand_dims(const EvalContext& c) {
  std::vector<Dims> dims;
  for (const HostValue& v : c.inputs) dims.push_back(v.tensor.dims());
  return dims;
}

template <class T, class Load, class Apply, class Store>
void apply(const EvalContext& c, const std::vector<Dims>& dims, const Dims& out_dims, Load load, Apply fn,
           Store store) {
  std::vector<std::vector<T>> wide;
  for (const HostValue& v : c.inputs) wide.push_back(load(v.tensor));
  T x[3] = {};
  over_broadcast(dims, out_dims, [&](const std::vector<int64_t>& at, int64_t i) {
    for (size_t k = 0; k < wide.size(); ++k) x[k] = wide[k][static_cast<size_t>(at[k])];
    store(i, fn(x));
  });
}

std::vector<uint64_t> to_uints(const Tensor& t) {
  std::vector<uint64_t> out;
  for (int64_t v : to_ints(t)) out.push_back(static_cast<uint64_t>(v));
  return out;
}

}  // namespace

void eval_pointwise(EvalContext& c) {
  const ScalarDef& s = *c.node.op->scalar;
  DType t = c.in(0).dtype();
  std::vector<Dims> dims = operand_dims(c);
  Dims out_dims = broadcast_dims(dims);
  Tensor out = Tensor::zeros(s.yields_bool ? DType::boolean : t, out_dims);
  if (t == DType::string) {
    bool wanted = c.node.is("eq");
    over_broadcast(dims, out_dims, [&](const std::vector<int64_t>& at, int64_t i) {
      bool same =
          c.in(0).strings()[static_cast<size_t>(at[0])] == c.in(1).strings()[static_cast<size_t>(at[1])];
      out.set_int(i, same == wanted);
    });
  } else if (t == DType::boolean) {
    std::vector<std::vector<int64_t>> wide;
    for (const HostValue& v : c.inputs) wide.push_back(to_ints(v.tensor));
    over_broadcast(dims, out_dims, [&](const std::vector<int64_t>& at, int64_t i) {
      bool x[3] = {};
      for (size_t k = 0; k < wide.size(); ++k) x[k] = wide[k][static_cast<size_t>(at[k])] != 0;
      out.set_int(i, s.boolean(x));
    });
  } else if (is_float(t)) {
    if (t == DType::f32 && !s.yields_bool) {
      float* o = out.as_mutable<float>();
      apply<double>(c, dims, out_dims, to_doubles, s.real,
                    [&](int64_t i, double v) { o[i] = static_cast<float>(v); });
    } else {
      apply<double>(c, dims, out_dims, to_doubles, s.real,
                    [&](int64_t i, double v) { out.set_double(i, v); });
    }
  } else if (is_signed_int(t)) {
    apply<int64_t>(c, dims, out_dims, to_ints, s.sint, [&](int64_t i, int64_t v) { out.set_int(i, v); });
  } else {
    // Shifts beyond the width are defined on the type, not on 64 bits: set_int drops the high bits.
    apply<uint64_t>(c, dims, out_dims, to_uints, s.uint,
                    [&](int64_t i, uint64_t v) { out.set_int(i, static_cast<int64_t>(v)); });
  }
  c.out(0, std::move(out));
}

// Base and exponent may differ in type; integer bases use exact repeated squaring for exponents >= 0 and
// f64 (truncated) otherwise.
void eval_pow(EvalContext& c) {
  const Tensor &base = c.in(0), &exponent = c.in(1);
  std::vector<Dims> dims = operand_dims(c);
  Dims out_dims = broadcast_dims(dims);
  Tensor out = Tensor::zeros(base.dtype(), out_dims);
  bool exact = is_int(base.dtype()) && is_int(exponent.dtype());
  over_broadcast(dims, out_dims, [&](const std::vector<int64_t>& at, int64_t i) {
    if (exact && exponent.get_int(at[1]) >= 0) {
      auto x = static_cast<uint64_t>(base.get_int(at[0])), e = static_cast<uint64_t>(exponent.get_int(at[1]));
      uint64_t r = 1;
      for (; e; e >>= 1, x *= x)
        if (e & 1) r *= x;
      out.set_int(i, static_cast<int64_t>(r));
    } else {
      out.set_double(i, std::pow(base.get_double(at[0]), exponent.get_double(at[1])));
    }
  });
  c.out(0, std::move(out));
}

void eval_select(EvalContext& c) {
  std::vector<Dims> dims = operand_dims(c);
  Dims out_dims = broadcast_dims(dims);
  DType t = c.in(1).dtype();
  Tensor out = t == DType::string ? Tensor(t, out_dims) : Tensor::zeros(t, out_dims);
  over_broadcast(dims, out_dims, [&](const std::vector<int64_t>& at, int64_t i) {
    if (c.in(0).get_int(at[0]))
      copy_element(out, i, c.in(1), at[1]);
    else
      copy_element(out, i, c.in(2), at[2]);
  });
  c.out(0, std::move(out));
}

}  // namespace pelton::ir
