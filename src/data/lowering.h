// SPDX-License-Identifier: Apache-2.0
// The work behind data/lower.h: follows LazyImage step by step. A resize and a colour matrix stay pending
// until pixels are needed, and round to 8 bits where the host rounds.
#pragma once

#include <array>
#include <optional>

#include "data/graph_draw.h"
#include "data/ops/colour.h"
#include "data/ops/stage.h"
#include "data/spec.h"
#include "ir/builder.h"

namespace pelton::data {

inline constexpr int kRowAxis = 1, kColumnAxis = 2, kChannelAxis = 3;

class Lowering {
 public:
  // pictures: u8 [N, H, W, C]. Without `draws` nothing may be random and a decode stage comes first; with it
  // the pictures are decoded already.
  Lowering(ir::Builder& b, const PipelineSpec& spec, ir::ValueId pictures, GraphDraw* draws = nullptr);
  ir::ValueId run();

 private:
  void stage(const std::string& op, const Args& a);
  Dim place(const Dim& room, const Args& a, const char* option) const;
  void set_fill(std::array<uint8_t, 3> fill);
  void crop(const Dim& top, const Dim& left, int h, int w);
  void border(const Dim& above, const Dim& below, const Dim& before, const Dim& behind);
  void pad_stage(const Args& a);
  void resize_stage(const Args& a);
  void reverse(int axis);
  void recolour(const ColourMatrix& m);
  void to_grey();

  // --- stages with draws of their own for each sample (lower_drawn.cc)
  using Entries = std::array<ir::ValueId, 12>;             // of a colour matrix, f32 [N, 1, 1, 1] or []
  bool drawn_stage(const std::string& op, const Args& a);  // false: nothing in it is drawn
  ir::ValueId drawn(const Args& a, const char* option);    // f64 [N, 1, 1, 1], or [] when constant
  ir::ValueId flag(const Args& a, const char* option);
  ir::ValueId each(ir::ValueId v);  // [N] to [N, 1, 1, 1]
  Entries entries(const ColourMatrix& m);
  Entries product(const Entries& a, const Entries& b);
  Entries drawn_matrix(const std::string& op, const Args& a);
  void recolour_drawn(const Entries& m);
  ir::ValueId picked(ir::ValueId rows, ir::ValueId columns);
  ir::ValueId along(int axis, int64_t size, DType dtype);
  void drawn_flip(const Args& a);
  void drawn_crop(const Args& a);
  void drawn_erase(const Args& a);
  void drawn_turn(const Args& a);
  void replace_where(ir::ValueId flags, ir::ValueId pixels);

  // --- pending work
  void sample();
  ir::ValueId channel(ir::ValueId v, int c);
  void apply_colour();
  ir::ValueId clamped();
  void settle();
  ir::ValueId finish();
  void resize_to(const Dim& h, const Dim& w);
  const SymbolRanges& ranges() const;

  struct Resize {
    Dim h, w, y, x;  // the whole result's size, and where the part that is wanted starts
  };
  ir::Builder& b_;
  const PipelineSpec& spec_;
  ir::ValueId value_;
  GraphDraw* draws_;
  std::string where_;
  Dim h_, w_;
  int64_t least_h_ = 0, least_w_ = 0;  // what the sizes are at least, where the algebra cannot tell
  int channels_ = 3;
  std::optional<Resize> resize_;  // of value_, default mode only
  Filter last_filter_ = Filter::linear;
  bool last_antialias_ = true, sampled_ = false, padded_ = false;
  std::optional<ColourMatrix> colour_;  // at most one of the two is pending
  std::optional<Entries> drawn_colour_;
  std::array<uint8_t, 3> fill_{};
  PixelFormat format_{DType::u8, false, {}, {1, 1, 1, 1}};
};

}  // namespace pelton::data
