// SPDX-License-Identifier: Apache-2.0
// A product A [M, K] times B [K, N] on own loops, for conv, conv_transpose and matmul: the weights (or left
// operand) are brought to A once, and B is gathered panel by panel, so no im2col matrix and no packed copy of
// all of B is ever held.
#pragma once

#include <memory>
#include <vector>

#include "backend/cpu/own/panel.h"
#include "backend/cpu/support.h"
#include "backend/cpu/tile/lanes.h"
#include "backend/ran_by.h"

namespace pelton::backend::cpu {

// Holds A as lanes, a_copies() times [M, K], in advance if it is constant; makes the panels and the result.
class ContractionKernel : public Kernel, public HandedOn {
 public:
  explicit ContractionKernel(const device::Target& target) : target_(target) {}

  int64_t scratch_bytes() const override {
    const int64_t chunks = units_ ? (units_ + grain_ - 1) / grain_ : 0;
    return (packed_a_.defined() ? 0 : a_copies() * a_bytes_) + chunks * panel_bytes_;
  }
  int64_t packed_bytes() const override { return packed_a_.defined() ? packed_a_.bytes() : 0; }
  std::string_view ran_by() const override { return "cpu.contraction"; }

  void run(const RunArgs& args) const override;

 protected:
  static constexpr int64_t kMaxColumns = 64;  // of a panel

  // What the product multiplies: batch by batch.
  struct Product {
    Lane lane = Lane::f32;
    int64_t batches = 1, m = 0, n = 0, k = 0;
    // Result.
    DType y_type = DType::f32;
    std::vector<int64_t> y_batch;
    int64_t y_row = 0, y_column = 1;
    StoreFunction store = nullptr;
    PanelFunction panel = nullptr;
    int64_t columns = 0;
  };

  // From integer lanes.
  static void subtract(std::byte* lanes, int64_t count, int64_t zero) {
    auto* p = reinterpret_cast<int64_t*>(lanes);
    for (int64_t i = 0; i < count; ++i) p[i] -= zero;
  }

  virtual int64_t a_copies() const = 0;
  // Writes A of copy c (lanes, [M, K]).
  virtual void fill_a(int64_t c, const RunArgs& args, std::byte* to) const = 0;
  virtual int64_t a_of(int64_t batch) const = 0;
  // Writes columns [first, first + count) of B of a batch to the panel ([K][columns], the rest zero).
  virtual void fill_panel(int64_t batch, int64_t first, int64_t count, const RunArgs& args,
                          std::byte* to) const = 0;
  // Value added to row m of batch b, as lanes; null: none.
  virtual const void* bias(const RunArgs&) const { return nullptr; }
  virtual int64_t bias_row(int64_t, int64_t row) const { return row; }

  int64_t width() const { return lane_bytes(p_.lane); }
  void finish_setup();
  // Packs A in advance from constant bytes.
  void pack_a(const Tensor& constant, int input);

  Product p_;
  device::Target target_;
  Tensor packed_a_;
  int64_t a_bytes_ = 0, panel_bytes_ = 0, panels_ = 0, units_ = 0, grain_ = 1;

 private:
  int64_t columns_of(int64_t index) const { return std::min(p_.columns, p_.n - index * p_.columns); }
  void one_panel(int64_t batch, int64_t index, const std::byte* a, const std::byte* panel,
                 const RunArgs& args) const;
  void add_bias(std::byte* lanes, int64_t count, const void* bias, int64_t index) const;
};

std::unique_ptr<Kernel> make_own_matmul(const Instance& instance, const device::Target& target);
std::unique_ptr<Kernel> make_own_conv(const Instance& instance, const device::Target& target);

}  // namespace pelton::backend::cpu
