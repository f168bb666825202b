// SPDX-License-Identifier: Apache-2.0
// Random instances of composites: operands and attributes, sizes 0 and 1 included.
#pragma once

#include <algorithm>
#include <optional>
#include <string_view>
#include <vector>

#include "base/philox.h"
#include "ir/attr.h"

namespace pelton::test {

// Draws of one case, a pure function of its number.
class Draw {
 public:
  explicit Draw(uint64_t number) : stream_{7, number, 1} {}
  int64_t below(int64_t n) { return static_cast<int64_t>(stream_.bits(next_++) % static_cast<uint64_t>(n)); }
  bool coin() { return below(2) != 0; }
  // 0 in one of eight, 1 in two of eight, else up to 5.
  int64_t size(int64_t least = 0) {
    int64_t d = below(8);
    return std::max(least, d == 0 ? 0 : d < 3 ? 1 : 1 + below(5));
  }
  Dims dims(int64_t rank, int64_t least = 0) {
    Dims out;
    for (int64_t i = 0; i < rank; ++i) out.push_back(size(least));
    return out;
  }
  double real(double low, double high) {
    return low + (high - low) * static_cast<double>(stream_.uniform(next_++));
  }
  Tensor normal(DType t, const Dims& dims) {
    Tensor x = Tensor::zeros(t, dims);
    for (int64_t i = 0; i < x.count(); ++i) x.set_double(i, stream_.normal(next_++));
    return x;
  }
  Tensor uniform(DType t, const Dims& dims, double low, double high) {
    Tensor x = Tensor::zeros(t, dims);
    for (int64_t i = 0; i < x.count(); ++i) x.set_double(i, real(low, high));
    return x;
  }
  Tensor ints(DType t, const Dims& dims, int64_t limit) {
    Tensor x = Tensor::zeros(t, dims);
    for (int64_t i = 0; i < x.count(); ++i) x.set_int(i, below(limit));
    return x;
  }
  template <class T>
  const T& one_of(const std::vector<T>& items) {
    return items[static_cast<size_t>(below(static_cast<int64_t>(items.size())))];
  }

 private:
  RandomStream stream_;
  uint64_t next_ = 0;
};

struct Instance {
  std::vector<Tensor> inputs;  // undefined: absent
  ir::Attrs attrs;
  size_t outputs = 1;
};

inline Tensor maybe(Draw& d, Tensor t) {
  return d.coin() ? t : Tensor();
}

// An instance of a composite; none if this does not know the op.
std::optional<Instance> draw(std::string_view op, Draw& d, DType t);
// Of the forward ops whose gradients are composites.
Instance norm_tail(Draw& d, DType t, size_t operands, size_t outputs);
Instance channels(Draw& d, DType t, size_t parameters, size_t outputs, int64_t least);
Instance group_norm(Draw& d, DType t);
Instance attention(Draw& d, DType t);
Instance loss(Draw& d, DType t, size_t outputs);
// draw() of gradients.
std::optional<Instance> draw_backward(std::string_view op, Draw& d, DType t);

}  // namespace pelton::test
