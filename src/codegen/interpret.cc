// SPDX-License-Identifier: Apache-2.0
#include "codegen/interpret.h"

#include <cmath>

#include "ir/op.h"
#include "tensor/float_types.h"

namespace pelton::codegen {
namespace {

// A scalar: floats in `real` (already rounded to the type), integers and bool in `whole`.
struct Scalar {
  double real = 0;
  int64_t whole = 0;
};

Scalar rounded(DType t, double v) {
  Scalar s;
  if (t == DType::f64)
    s.real = v;
  else if (t == DType::f32)
    s.real = static_cast<float>(v);
  else
    s.real = small_float_to_double(t, small_float_from_double(t, v, true));
  return s;
}
Scalar wrapped(DType t, int64_t v) {
  Scalar s;
  if (t == DType::boolean) {
    s.whole = v != 0;
  } else if (bits(t) == 64) {
    s.whole = v;
  } else {
    auto shift = static_cast<unsigned>(64 - bits(t));
    uint64_t high = static_cast<uint64_t>(v) << shift;
    s.whole = is_signed_int(t) ? static_cast<int64_t>(high) >> shift : static_cast<int64_t>(high >> shift);
  }
  return s;
}
Scalar read(const Tensor& t, int64_t i) {
  Scalar s;
  if (is_float(t.dtype()))
    s.real = t.get_double(i);
  else
    s.whole = t.get_int(i);
  return s;
}
void write(Tensor& t, int64_t i, const Scalar& s) {
  if (is_float(t.dtype()))
    t.set_double(i, s.real);
  else
    t.set_int(i, s.whole);
}

class Run {
 public:
  Run(const Kernel& kernel, const std::vector<Tensor>& inputs, const SymbolValues& sizes)
      : k_(kernel), values_(sizes), scalars_(kernel.scalar_types.size()) {
    size_t next = 0;
    for (const Buffer& b : k_.buffers) {
      Dims dims = eval(b.dims, values_);
      if (b.output) {
        tensors_.push_back(Tensor::zeros(b.dtype, dims));
        continue;
      }
      PELTON_CHECK(next < inputs.size(), "kernel ", k_.name, " misses input ", b.name);
      const Tensor& t = inputs[next++];
      PELTON_CHECK(t.dtype() == b.dtype && t.dims() == dims, "kernel ", k_.name, " gets ", t.str(), " as ",
                   b.name);
      tensors_.push_back(t);
    }
  }

  std::vector<Tensor> run() {
    block(k_.body);
    std::vector<Tensor> out;
    for (size_t i = 0; i < tensors_.size(); ++i)
      if (k_.buffers[i].output) out.push_back(tensors_[i]);
    return out;
  }

 private:
  using Kind = Statement::Kind;

  int64_t offset(const Statement& s) const {
    const Tensor& t = tensors_[s.buffer];
    int64_t at = 0;
    for (size_t d = 0; d < s.index.size(); ++d) {
      int64_t i = s.index[d].eval(values_), size = t.dims()[d];
      PELTON_CHECK(i >= 0 && i < size, "kernel ", k_.name, " uses index ", i, " of axis ", d, " of ",
                   k_.buffers[s.buffer].name, " with size ", size);
      at = at * size + i;
    }
    return at;
  }
  bool inside(const Statement& s) const {
    for (const Bound& b : s.mask)
      if (int64_t v = b.value.eval(values_); v < 0 || v >= b.limit.eval(values_)) return false;
    return true;
  }

  Scalar number(const Statement& s) const {
    DType t = k_.scalar_types[s.result];
    return is_float(t) ? rounded(t, s.real) : wrapped(t, s.integer);
  }

  Scalar apply(const Statement& s) const {
    const ir::ScalarDef& def = *ir::op(s.op).scalar;
    DType from = k_.scalar_types[s.operands[0]], to = k_.scalar_types[s.result];
    if (s.op == "select") return scalars_[s.operands[scalars_[s.operands[0]].whole ? 1 : 2]];
    if (is_float(from)) {
      double x[3] = {};
      for (size_t i = 0; i < s.operands.size(); ++i) {
        DType t = k_.scalar_types[s.operands[i]];
        const Scalar& v = scalars_[s.operands[i]];
        x[i] = is_float(t) ? v.real : static_cast<double>(v.whole);
      }
      double v = def.real(x);
      return def.yields_bool ? wrapped(DType::boolean, v != 0) : rounded(to, v);
    }
    if (from == DType::boolean) {
      bool x[3] = {};
      for (size_t i = 0; i < s.operands.size(); ++i) x[i] = scalars_[s.operands[i]].whole != 0;
      return wrapped(to, def.boolean(x));
    }
    if (is_signed_int(from)) {
      int64_t x[3] = {};
      for (size_t i = 0; i < s.operands.size(); ++i) x[i] = scalars_[s.operands[i]].whole;
      return wrapped(to, def.sint(x));
    }
    uint64_t x[3] = {};
    for (size_t i = 0; i < s.operands.size(); ++i)
      x[i] = static_cast<uint64_t>(scalars_[s.operands[i]].whole);
    return wrapped(to, static_cast<int64_t>(def.uint(x)));
  }

  Scalar cast(DType from, const Scalar& v, DType to) const {
    Tensor t = Tensor::zeros(to, {});
    if (to == DType::boolean)
      t.set_int(0, is_float(from) ? v.real != 0 : v.whole != 0);
    else if (is_float(from))
      t.set_double(0, v.real);
    else if (!is_float(to))
      t.set_int(0, v.whole);
    else
      t.set_double(0, from == DType::u64 ? static_cast<double>(static_cast<uint64_t>(v.whole))
                                         : static_cast<double>(v.whole));
    return read(t, 0);
  }

  Scalar reduce(const Statement& s) {
    DType t = k_.scalar_types[s.result];
    bool real = is_float(t), unsigned_type = is_unsigned_int(t);
    double sum = s.op == "sum" ? 0 : s.op == "prod" ? 1 : s.op == "max" ? -INFINITY : INFINITY;
    uint64_t whole = s.op == "sum" ? 0 : s.op == "prod" ? 1 : 0;
    bool first = true;
    int64_t extent = s.extent.eval(values_);
    for (int64_t i = 0; i < extent; ++i, first = false) {
      values_[s.variable] = i;
      block(s.body);
      const Scalar& v = scalars_[s.operands[0]];
      auto w = static_cast<uint64_t>(v.whole);
      auto less = [&](uint64_t a, uint64_t b) {
        return unsigned_type ? a < b : static_cast<int64_t>(a) < static_cast<int64_t>(b);
      };
      if (s.op == "sum") {
        sum = real && t != DType::f64 ? static_cast<float>(sum + v.real) : sum + v.real;
        whole += w;
      } else if (s.op == "prod") {
        sum = real && t != DType::f64 ? static_cast<float>(sum * v.real) : sum * v.real;
        whole *= w;
      } else {
        bool max = s.op == "max";
        if (std::isnan(v.real) || (!std::isnan(sum) && (max ? v.real > sum : v.real < sum))) sum = v.real;
        if (first || (max ? less(whole, w) : less(w, whole))) whole = w;
      }
    }
    values_.erase(s.variable);
    if (real) return rounded(t, sum);
    if (first && (s.op == "max" || s.op == "min")) {
      Tensor limit = Tensor::zeros(t, {});
      limit.set_double(0, s.op == "max" ? lowest(t) : highest(t));
      return read(limit, 0);
    }
    return wrapped(t, static_cast<int64_t>(whole));
  }

  void block(const Block& body) {
    for (const Statement& s : body) {
      switch (s.kind) {
        case Kind::constant:
          scalars_[s.result] = number(s);
          break;
        case Kind::index:
          scalars_[s.result].whole = s.index[0].eval(values_);
          break;
        case Kind::load:
          scalars_[s.result] = inside(s) ? read(tensors_[s.buffer], offset(s)) : number(s);
          break;
        case Kind::apply:
          scalars_[s.result] = apply(s);
          break;
        case Kind::cast:
          scalars_[s.result] =
              cast(k_.scalar_types[s.operands[0]], scalars_[s.operands[0]], k_.scalar_types[s.result]);
          break;
        case Kind::reduce:
          scalars_[s.result] = reduce(s);
          break;
        case Kind::loop: {
          int64_t extent = s.extent.eval(values_);
          for (int64_t i = 0; i < extent; ++i) {
            values_[s.variable] = i;
            block(s.body);
          }
          values_.erase(s.variable);
          break;
        }
        case Kind::store:
          write(tensors_[s.buffer], offset(s), scalars_[s.operands[0]]);
          break;
      }
    }
  }

  const Kernel& k_;
  SymbolValues values_;
  std::vector<Scalar> scalars_;
  std::vector<Tensor> tensors_;
};

}  // namespace

std::vector<Tensor> interpret(const Kernel& kernel, const std::vector<Tensor>& inputs,
                              const SymbolValues& sizes) {
  return Run(kernel, inputs, sizes).run();
}

}  // namespace pelton::codegen
