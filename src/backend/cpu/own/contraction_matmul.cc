// SPDX-License-Identifier: Apache-2.0
// matmul on own loops.
#include <cstring>

#include "backend/cpu/own/contraction.h"

namespace pelton::backend::cpu {
namespace {

class MatmulKernel final : public ContractionKernel {
 public:
  MatmulKernel(const Instance& instance, const device::Target& target)
      : ContractionKernel(target), a_(instance.inputs[0]), b_(instance.inputs[1]) {
    const ir::Node& n = instance.node();
    auto matrix = [](const Dims& dims, bool left, bool flip, Dims& d, std::vector<int64_t>& s) {
      d = dims;
      s = row_major_strides(dims);
      if (dims.size() == 1) {
        d.insert(left ? d.begin() : d.end(), 1);
        s.insert(left ? s.begin() : s.end(), 0);
      } else if (flip) {
        std::swap(d[d.size() - 1], d[d.size() - 2]);
        std::swap(s[s.size() - 1], s[s.size() - 2]);
      }
    };
    Dims ad, bd;
    matrix(a_.dims, true, n.get_bool("transpose_a"), ad, a_strides_);
    matrix(b_.dims, false, n.get_bool("transpose_b"), bd, b_strides_);
    p_.lane = lane_of(a_.dtype);
    p_.m = ad[ad.size() - 2];
    p_.k = ad.back();
    p_.n = bd.back();
    const size_t rank = std::max(ad.size(), bd.size());
    auto pad = [rank](Dims& d, std::vector<int64_t>& s) {
      d.insert(d.begin(), rank - d.size(), 1);
      s.insert(s.begin(), rank - s.size(), 0);
    };
    pad(ad, a_strides_);
    pad(bd, b_strides_);
    Dims batch;
    for (size_t d = 0; d + 2 < rank; ++d) batch.push_back(ad[d] == 1 ? bd[d] : ad[d]);
    p_.batches = element_count(batch);
    a_copies_ = element_count(Dims(ad.begin(), ad.end() - 2));
    const Dims a_order = row_major_strides(Dims(ad.begin(), ad.end() - 2));
    for (int64_t b = 0; b < p_.batches; ++b) {
      int64_t rest = b, copy = 0, b_at = 0;
      for (size_t d = batch.size(); d-- > 0;) {
        const int64_t i = rest % batch[d];
        rest /= batch[d];
        if (ad[d] != 1) copy += i * a_order[d];
        if (bd[d] != 1) b_at += i * b_strides_[d];
      }
      copy_of_.push_back(copy);
      b_at_.push_back(b_at);
      p_.y_batch.push_back(b * p_.m * p_.n);
    }
    for (int64_t c = 0; c < a_copies_; ++c) {
      int64_t rest = c, at = 0;
      for (size_t d = batch.size(); d-- > 0;) {
        at += rest % ad[d] * a_strides_[d];
        rest /= ad[d];
      }
      a_at_.push_back(at);
    }
    p_.y_row = p_.n;
    p_.y_type = instance.outputs[0].dtype;
    a_zero_spec_ = instance.has(2);
    b_zero_spec_ = instance.has(3);
    if (a_zero_spec_) a_zero_count_ = instance.inputs[2].count();
    if (b_zero_spec_) b_zero_count_ = instance.inputs[3].count();
    rank_ = rank;
    load_a_ = load_function(a_.dtype, target.isa);
    load_b_ = load_function(b_.dtype, target.isa);
    finish_setup();
  }

 private:
  static int64_t byte_at(const void* p, DType t, int64_t i) {
    return t == DType::u8 ? static_cast<const uint8_t*>(p)[i] : static_cast<const int8_t*>(p)[i];
  }
  int64_t a_copies() const override { return a_copies_; }
  int64_t a_of(int64_t batch) const override { return copy_of_[static_cast<size_t>(batch)]; }
  void fill_a(int64_t c, const RunArgs& args, std::byte* to) const override {
    const int64_t row = a_strides_[rank_ - 2], step = a_strides_[rank_ - 1], size = bits(a_.dtype) / 8;
    const auto* from = static_cast<const std::byte*>(args.in[0]) + a_at_[static_cast<size_t>(c)] * size;
    for (int64_t m = 0; m < p_.m; ++m) {
      load_a_(from + m * row * size, step, to + m * p_.k * width(), p_.k);
      if (!a_zero_spec_) continue;
      // One zero point, one a row, or (with batches) one a row of every matrix.
      const int64_t i = a_zero_count_ == 1 ? 0 : a_zero_count_ == p_.m ? m : c * p_.m + m;
      subtract(to + m * p_.k * width(), p_.k, byte_at(args.in[2], a_.dtype, i));
    }
  }
  void fill_panel(int64_t batch, int64_t first, int64_t count, const RunArgs& args,
                  std::byte* to) const override {
    const int64_t row = b_strides_[rank_ - 2], step = b_strides_[rank_ - 1], size = bits(b_.dtype) / 8;
    const auto* from =
        static_cast<const std::byte*>(args.in[1]) + (b_at_[static_cast<size_t>(batch)] + first * step) * size;
    if (count < p_.columns && p_.k > 0) std::memset(to, 0, static_cast<size_t>(p_.k * p_.columns * width()));
    for (int64_t k = 0; k < p_.k; ++k) {
      std::byte* lanes = to + k * p_.columns * width();
      load_b_(from + k * row * size, step, lanes, count);
      if (!b_zero_spec_) continue;
      auto* ints = reinterpret_cast<int64_t*>(lanes);
      for (int64_t c = 0; c < count; ++c) {
        const int64_t i = b_zero_count_ == 1 ? 0
                          : b_zero_count_ == p_.n
                              ? first + c
                              : b_at_[static_cast<size_t>(batch)] / (p_.k * p_.n) * p_.n + first + c;
        ints[c] -= byte_at(args.in[3], b_.dtype, i);
      }
    }
  }

  TensorSpec a_, b_;
  std::vector<int64_t> a_strides_, b_strides_, copy_of_, a_at_, b_at_;
  int64_t a_copies_ = 1, a_zero_count_ = 0, b_zero_count_ = 0;
  bool a_zero_spec_ = false, b_zero_spec_ = false;
  size_t rank_ = 2;
  LoadFunction load_a_ = nullptr, load_b_ = nullptr;
};

}  // namespace

std::unique_ptr<Kernel> make_own_matmul(const Instance& instance, const device::Target& target) {
  return std::make_unique<MatmulKernel>(instance, target);
}

}  // namespace pelton::backend::cpu
