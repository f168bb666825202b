// SPDX-License-Identifier: Apache-2.0
// conv, conv_transpose and matmul on own loops, every compute type. All three are A [M, K] times B [K, N]:
// the weights (or left operand) are brought to A once, and B is gathered panel by panel, so no im2col matrix
// and no packed copy of all of B is ever held.
#include <cstring>

#include "backend/conv_window.h"
#include "backend/cpu/fallback.h"
#include "backend/cpu/implementations.h"
#include "backend/cpu/own/panel.h"
#include "backend/cpu/support.h"
#include "backend/cpu/tile/lanes.h"
#include "backend/ran_by.h"

namespace pelton::backend::cpu {
namespace {

constexpr int64_t kMaxColumns = 64;

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

std::vector<int64_t> channel_strides(const TensorSpec& t) {
  // [batch, channel, spatial...] strides of a plain or channels-last tensor.
  std::vector<int64_t> s = row_major_strides(t.dims);
  if (t.layout.kind != ir::Layout::Kind::channels_last) return s;
  s[1] = 1;
  int64_t step = t.dims[1];
  for (size_t d = t.dims.size(); d-- > 2; step *= t.dims[d]) s[d] = step;
  s[0] = step;
  return s;
}

// Holds A as lanes, a_copies() times [M, K], in advance if it is constant; makes the panels and the result.
class ContractionKernel : public Kernel, public HandedOn {
 public:
  explicit ContractionKernel(const device::Target& target) : target_(target) {}

 protected:
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
  void finish_setup() {
    p_.columns = panel_columns(p_.lane, target_.isa);
    p_.panel = panel_function(p_.lane, target_.isa);
    p_.store = store_function(p_.y_type, target_.isa);
    a_bytes_ = align64(p_.m * p_.k * width());
    panel_bytes_ = align64(p_.k * p_.columns * width());
    panels_ = (p_.n + p_.columns - 1) / p_.columns;
    units_ = p_.batches * panels_;
    grain_ = std::max<int64_t>(grain_for(units_, p_.m * p_.k * p_.columns / 16), (units_ + 15) / 16);
  }

 public:
  int64_t scratch_bytes() const override {
    const int64_t chunks = units_ ? (units_ + grain_ - 1) / grain_ : 0;
    return (packed_a_.defined() ? 0 : a_copies() * a_bytes_) + chunks * panel_bytes_;
  }
  int64_t packed_bytes() const override { return packed_a_.defined() ? packed_a_.bytes() : 0; }
  std::string_view ran_by() const override { return "cpu.contraction"; }

  void run(const RunArgs& args) const override {
    if (units_ == 0 || p_.m == 0) return;
    const std::byte* a;
    std::byte* panels = static_cast<std::byte*>(args.scratch);
    if (packed_a_.defined()) {
      a = static_cast<const std::byte*>(packed_a_.data());
    } else {
      std::byte* to = panels;
      parallel_for(0, a_copies(), 1, [&](int64_t begin, int64_t end) {
        for (int64_t c = begin; c < end; ++c) fill_a(c, args, to + c * a_bytes_);
      });
      a = to;
      panels = to + a_copies() * a_bytes_;
    }
    parallel_for(0, units_, grain_, [&](int64_t begin, int64_t end) {
      std::byte* panel = panels + begin / grain_ * panel_bytes_;
      for (int64_t unit = begin; unit < end; ++unit)
        one_panel(unit / panels_, unit % panels_, a, panel, args);
    });
  }

 protected:
  // Packs A in advance from constant bytes.
  void pack_a(const Tensor& constant, int input) {
    packed_a_ = Tensor(DType::u8, {a_copies() * a_bytes_});
    const void* in[5] = {};
    in[input] = constant.data();
    const RunArgs args{in, {}, nullptr, {}};
    for (int64_t c = 0; c < a_copies(); ++c)
      fill_a(c, args, static_cast<std::byte*>(packed_a_.mutable_data()) + c * a_bytes_);
  }

  Product p_;
  device::Target target_;
  Tensor packed_a_;
  int64_t a_bytes_ = 0, panel_bytes_ = 0, panels_ = 0, units_ = 0, grain_ = 1;

 private:
  void one_panel(int64_t batch, int64_t index, const std::byte* a, std::byte* panel,
                 const RunArgs& args) const {
    const int64_t first = index * p_.columns, count = std::min(p_.columns, p_.n - first);
    fill_panel(batch, first, count, args, panel);
    const std::byte* rows = a + a_of(batch) * a_bytes_;
    const void* extra = bias(args);
    auto* y = static_cast<std::byte*>(args.out[0]);
    const int64_t y_width = bits(p_.y_type) / 8;
    alignas(64) std::byte out[kPanelRows * kMaxColumns * 8];
    for (int64_t m = 0; m < p_.m; m += kPanelRows) {
      const int64_t height = std::min(kPanelRows, p_.m - m);
      p_.panel(height, p_.k, rows + m * p_.k * width(), p_.k, panel, out);
      for (int64_t r = 0; r < height; ++r) {
        std::byte* lanes = out + r * p_.columns * width();
        if (extra) add_bias(lanes, count, extra, bias_row(batch, m + r));
        p_.store(
            lanes,
            y + (p_.y_batch[static_cast<size_t>(batch)] + (m + r) * p_.y_row + first * p_.y_column) * y_width,
            p_.y_column, count);
      }
    }
  }
  void add_bias(std::byte* lanes, int64_t count, const void* bias, int64_t index) const {
    auto add = [&](auto* out, auto value) {
      for (int64_t c = 0; c < count; ++c) out[c] += value;
    };
    alignas(8) std::byte value[8];
    load_function(p_.y_type, target_.isa)(static_cast<const std::byte*>(bias) + index * (bits(p_.y_type) / 8),
                                          1, value, 1);
    if (p_.lane == Lane::f32) {
      float v;
      std::memcpy(&v, value, 4);
      add(reinterpret_cast<float*>(lanes), v);
    } else if (p_.lane == Lane::f64) {
      double v;
      std::memcpy(&v, value, 8);
      add(reinterpret_cast<double*>(lanes), v);
    } else {
      int64_t v;
      std::memcpy(&v, value, 8);
      add(reinterpret_cast<int64_t*>(lanes), v);
    }
  }
};

void subtract(std::byte* lanes, int64_t count, int64_t zero) {
  auto* p = reinterpret_cast<int64_t*>(lanes);
  for (int64_t i = 0; i < count; ++i) p[i] -= zero;
}

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

// A: weights of one group, [O / groups, C / groups * taps]. B: input values under each tap, gathered.
class ConvKernel final : public ContractionKernel {
 public:
  ConvKernel(const Instance& instance, const device::Target& target)
      : ContractionKernel(target), x_(instance.inputs[0]), w_(instance.inputs[1]) {
    const ir::Node& n = instance.node();
    const TensorSpec& y = instance.outputs[0];
    transposed_ = n.is("conv_transpose");
    groups_ = n.get_int("groups");
    window_ = conv_window(n, instance, w_.dims);
    taps_ = element_count(window_.kernel);
    p_.lane = lane_of(x_.dtype);
    inputs_ = x_.dims[1] / groups_;
    p_.m = y.dims[1] / groups_;
    p_.k = inputs_ * taps_;
    p_.batches = x_.dims[0] * groups_;
    spatial_.assign(y.dims.begin() + 2, y.dims.end());
    p_.n = element_count(spatial_);
    x_strides_ = channel_strides(x_);
    const std::vector<int64_t> ys = channel_strides(y);
    for (int64_t b = 0; b < p_.batches; ++b)
      p_.y_batch.push_back(b / groups_ * ys[0] + b % groups_ * p_.m * ys[1]);
    p_.y_row = ys[1];
    p_.y_column = ys.back();
    p_.y_type = y.dtype;
    has_bias_ = instance.has(2);
    load_x_ = load_function(x_.dtype, target.isa);
    load_w_ = load_function(w_.dtype, target.isa);
    x_zero_ = !transposed_ && instance.has(3);
    if (!transposed_ && instance.has(4)) w_zeros_ = instance.inputs[4].count();
    finish_setup();
    if (w_zeros_ == 0 && instance.constants[1].defined()) pack_a(instance.constants[1], 1);
  }

 private:
  int64_t a_copies() const override { return groups_; }
  int64_t a_of(int64_t batch) const override { return batch % groups_; }
  const void* bias(const RunArgs& args) const override { return has_bias_ ? args.in[2] : nullptr; }
  int64_t bias_row(int64_t batch, int64_t row) const override { return batch % groups_ * p_.m + row; }
  void fill_a(int64_t g, const RunArgs& args, std::byte* to) const override {
    const int64_t size = bits(w_.dtype) / 8;
    const auto* w = static_cast<const std::byte*>(args.in[1]);
    for (int64_t m = 0; m < p_.m; ++m)
      for (int64_t c = 0; c < inputs_; ++c) {
        const int64_t at =
            transposed_ ? ((g * inputs_ + c) * p_.m + m) * taps_ : ((g * p_.m + m) * inputs_ + c) * taps_;
        std::byte* row = to + (m * p_.k + c * taps_) * width();
        load_w_(w + at * size, 1, row, taps_);
        if (w_zeros_ == 0) continue;
        const int64_t i = w_zeros_ == 1 ? 0 : g * p_.m + m;
        subtract(row, taps_,
                 w_.dtype == DType::u8 ? static_cast<const uint8_t*>(args.in[4])[i]
                                       : static_cast<const int8_t*>(args.in[4])[i]);
      }
  }
  // Element offset within the image of the input under tap `t` of output position `o`, or -1 (padding).
  int64_t under(const int64_t* o, const int64_t* t) const {
    int64_t at = 0;
    for (size_t d = 0; d < spatial_.size(); ++d) {
      int64_t i;
      if (transposed_) {
        i = o[d] + window_.low[d] - t[d] * window_.dilations[d];
        if (i < 0 || i % window_.strides[d] != 0) return -1;
        i /= window_.strides[d];
      } else {
        i = o[d] * window_.strides[d] - window_.low[d] + t[d] * window_.dilations[d];
      }
      if (i < 0 || i >= x_.dims[d + 2]) return -1;
      at += i * x_strides_[d + 2];
    }
    return at;
  }
  void fill_panel(int64_t batch, int64_t first, int64_t count, const RunArgs& args,
                  std::byte* to) const override {
    const int64_t size = bits(x_.dtype) / 8;
    const auto* x = static_cast<const std::byte*>(args.in[0]) +
                    (batch / groups_ * x_strides_[0] + batch % groups_ * inputs_ * x_strides_[1]) * size;
    const int64_t zero = !x_zero_ ? 0
                                  : (x_.dtype == DType::u8 ? *static_cast<const uint8_t*>(args.in[3])
                                                           : *static_cast<const int8_t*>(args.in[3]));
    constexpr size_t kMaxRank = 8;
    const size_t rank = spatial_.size();
    int64_t positions[kMaxColumns][kMaxRank];
    for (int64_t c = 0; c < count; ++c) {
      int64_t rest = first + c;
      for (size_t d = rank; d-- > 0;) {
        positions[c][d] = rest % spatial_[d];
        rest /= spatial_[d];
      }
    }
    int64_t offsets[kMaxColumns];
    int64_t tap[kMaxRank] = {};
    for (int64_t t = 0; t < taps_; ++t) {
      bool run = true;  // the inputs lie side by side
      for (int64_t c = 0; c < count; ++c) {
        offsets[c] = under(positions[c], tap);
        run = run && offsets[c] >= 0 && offsets[c] == offsets[0] + c;
      }
      for (int64_t ch = 0; ch < inputs_; ++ch) {
        std::byte* lanes = to + (ch * taps_ + t) * p_.columns * width();
        const std::byte* from = x + ch * x_strides_[1] * size;
        if (run && count == p_.columns) {
          load_x_(from + offsets[0] * size, 1, lanes, count);
          if (x_zero_) subtract(lanes, count, zero);
        } else {
          std::memset(lanes, 0, static_cast<size_t>(p_.columns * width()));
          for (int64_t c = 0; c < count; ++c) {
            if (offsets[c] < 0) continue;  // padding is zero, with a zero point it is that point
            load_x_(from + offsets[c] * size, 1, lanes + c * width(), 1);
            if (x_zero_) subtract(lanes + c * width(), 1, zero);
          }
        }
      }
      for (size_t d = rank; d-- > 0;) {
        if (++tap[d] < window_.kernel[d]) break;
        tap[d] = 0;
      }
    }
  }

  TensorSpec x_, w_;
  ConvWindow window_;
  Dims spatial_;
  std::vector<int64_t> x_strides_;
  int64_t groups_ = 1, inputs_ = 0, taps_ = 1, w_zeros_ = 0;
  bool transposed_ = false, has_bias_ = false, x_zero_ = false;
  LoadFunction load_x_ = nullptr, load_w_ = nullptr;
};

std::string refuse(const ir::Graph& graph, ir::NodeId node, const device::Target&) {
  return refuse_own_contraction(graph, node);
}

}  // namespace

std::string refuse_own_contraction(const ir::Graph& graph, ir::NodeId node) {
  const ir::Node& n = graph[node];
  for (size_t i = 0; i < 2; ++i) {
    const ir::Type& t = graph.type(n.inputs[i]);
    if (!is_compute(t.dtype)) return cat("does not compute in ", name(t.dtype));
    if (t.layout.kind == ir::Layout::Kind::blocked)
      return cat("needs a plain or channels-last layout, got ", t.layout.str());
    if (n.is("matmul") && !t.layout.is_plain()) return "needs plain operands";
    if (t.rank() > 9) return cat("takes up to 7 spatial dims, not ", t.rank() - 2);
  }
  if (graph.type(n.outputs[0]).layout.kind == ir::Layout::Kind::blocked)
    return "does not yield blocked tensors";
  return {};
}

std::unique_ptr<Kernel> prepare_own_contraction(const Instance& instance, const device::Target& target) {
  if (instance.node().is("matmul")) return std::make_unique<MatmulKernel>(instance, target);
  return std::make_unique<ConvKernel>(instance, target);
}

void add_own_contraction(Registry& registry) {
  registry.add({"cpu.contraction", {"conv", "conv_transpose", "matmul"}, refuse, prepare_own_contraction});
}

}  // namespace pelton::backend::cpu
