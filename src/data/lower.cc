// SPDX-License-Identifier: Apache-2.0
#include "data/lower.h"

#include "data/evaluation.h"
#include "data/lower_audio.h"
#include "data/lowering.h"
#include "ir/ops/picture.h"
#include "ir/verify.h"

namespace pelton::data {

using ir::Attr;
using ir::Ints;
using ir::ValueId;

namespace {

// nearbyint(d / 2): halves to even.
Dim half_to_even(const Dim& d) {
  if (d.is_const()) return Dim(static_cast<int64_t>(std::nearbyint(static_cast<double>(d.value()) / 2)));
  return Dim::floor_div(d + 1, 4) + Dim::floor_div(d + 2, 4);
}

std::string filter_name(Filter f) {
  constexpr const char* names[] = {"nearest", "box", "linear", "hamming", "cubic", "lanczos"};
  return names[static_cast<size_t>(f)];
}

}  // namespace

Lowering::Lowering(ir::Builder& b, const PipelineSpec& spec, ValueId pictures, GraphDraw* draws)
    : b_(b), spec_(spec), value_(pictures), draws_(draws) {
  const Shape& s = b.shape(pictures);
  if (b.dtype(pictures) != DType::u8 || s.size() != 4 || !s[3].is_const())
    fail(ErrorCode::bad_shape, cat("pictures are ", b.type(pictures).str(), ", not u8 [N, H, W, C]"),
         spec.name);
  h_ = s[1], w_ = s[2];
  channels_ = static_cast<int>(s[3].value());
}

ValueId Lowering::run() {
  bool decoded = draws_ != nullptr;
  for (size_t i = 0; i < spec_.stages.size(); ++i) {
    const StageSpec& s = spec_.stages[i];
    where_ = stage_place(spec_, i);
    const StageKind& kind = stage_kind(s.op, where_);
    Options options = s.options;
    options.erase("device");
    const Args args(kind.schema, options, where_);
    if (kind.make) kind.make(args, ir::match_from_name(spec_.match).value_or(Match::none));  // its own checks
    std::vector<uint32_t> slots;
    for (const OptionSpec& o : kind.schema.options) {
      if (!args.param(o.name).is_random()) continue;
      if (!draws_)
        fail(ErrorCode::usage, cat("'", o.name, "' of ", s.op, " is drawn at random"), where_,
             "give the stage when = \"train\", or a constant");
      slots.push_back(args.slot(o.name));
    }
    if (s.op == "erase")
      for (uint32_t slot = 64; slot < 64 + 40; ++slot) slots.push_back(slot);
    if (s.op == "decode") {
      decoded = true;
      continue;
    }
    if (leaves_picture(s.op)) continue;
    if (!decoded) fail(ErrorCode::usage, cat(s.op, " comes before decode"), where_);
    if (draws_) {
      draws_->begin(s.number < 0 ? static_cast<uint32_t>(i) : static_cast<uint32_t>(s.number),
                    std::move(slots));
      if (drawn_stage(s.op, args)) continue;
    }
    stage(s.op, args);
  }
  if (!decoded)
    fail(ErrorCode::usage, "the pipeline decodes no pictures", spec_.name, "add: op = \"decode\"");
  return finish();
}

void Lowering::stage(const std::string& op, const Args& a) {
  if (op == "crop") {
    const auto [w, h] = size_from(a);
    set_fill(fill_from(a));
    crop(place(h_ - h, a, "y"), place(w_ - w, a, "x"), h, w);
  } else if (op == "resize") {
    resize_stage(a);
  } else if (op == "flip") {
    if (a.boolean("horizontal")) reverse(kColumnAxis);
    if (a.boolean("vertical")) reverse(kRowAxis);
  } else if (op == "pad") {
    pad_stage(a);
  } else if (op == "brightness") {
    recolour(brightness_matrix(a.number("factor")));
  } else if (op == "contrast") {
    recolour(contrast_matrix(a.number("factor")));
  } else if (op == "saturation") {
    recolour(saturation_matrix(a.number("factor")));
  } else if (op == "hue") {
    recolour(hue_matrix(a.number("degrees")));
  } else if (op == "grayscale") {
    if (!a.boolean("probability")) return;
    if (a.integer("channels") == 1)
      to_grey();
    else
      recolour(saturation_matrix(0));
  } else if (op == "posterize") {
    if (!a.boolean("probability")) return;
    settle();
    const int bits = static_cast<int>(a.integer("bits"));
    value_ = b_.op("and", {value_, b_.scalar(DType::u8, 0xff & ~((1 << (8 - bits)) - 1))});
  } else if (op == "solarize") {
    if (!a.boolean("probability")) return;
    settle();
    const int threshold = static_cast<int>(a.integer("threshold"));
    if (threshold > 255) return;
    const ValueId bright = b_.op("ge", {value_, b_.scalar(DType::u8, threshold)});
    value_ = b_.select(bright, b_.sub(b_.scalar(DType::u8, 255), value_), value_);
  } else if (op == "normalize") {
    format_ = pixel_format(a);
  } else {
    fail(ErrorCode::unsupported_op, cat("stage '", op, "' has no compiled form"), where_,
         "give it when = \"train\", or let the client send the finished tensor");
  }
}

// (room) * share, halves to even, as the host places a crop.
Dim Lowering::place(const Dim& room, const Args& a, const char* option) const {
  const double share = a.number(option);
  if (share == 0) return 0;
  if (share == 0.5) return half_to_even(room);
  if (share == 1) return room;
  if (room.is_const())
    return Dim(static_cast<int64_t>(std::nearbyint(static_cast<double>(room.value()) * share)));
  fail(ErrorCode::usage, cat("'", option, "' = ", share, " of a picture whose size is open"), where_,
       "use 0, 0.5 or 1, or resize before");
}

void Lowering::set_fill(std::array<uint8_t, 3> fill) {
  if (fill != fill_ && padded_) settle();
  fill_ = fill;
}

void Lowering::crop(const Dim& top, const Dim& left, int h, int w) {
  const bool inside = (at_most(h, h_, ranges()) == Tri::yes || h <= least_h_) &&
                      (at_most(w, w_, ranges()) == Tri::yes || w <= least_w_);
  if (inside && resize_) {
    resize_->y = resize_->y + top;
    resize_->x = resize_->x + left;
  } else if (inside) {
    value_ = b_.op("slice", {value_},
                   {{"axes", Ints{kRowAxis, kColumnAxis}},
                    {"starts", Shape{top, left}},
                    {"sizes", Shape{h, w}},
                    {"steps", Ints{1, 1}}});
  } else {  // what lies outside becomes fill; negative pads cut
    border(-top, top + h - h_, -left, left + w - w_);
  }
  resize_to(h, w);
}

void Lowering::border(const Dim& above, const Dim& below, const Dim& before, const Dim& behind) {
  sample();
  apply_colour();
  const Shape low{0, above, before, 0}, high{0, below, behind, 0};
  const bool grey = fill_[0] == fill_[1] && fill_[1] == fill_[2];
  if (grey || channels_ == 1) {
    value_ = b_.op("pad", {value_, b_.like(value_, fill_[0])}, {{"low", low}, {"high", high}});
  } else {  // one fill a channel
    std::vector<ValueId> planes;
    for (int c = 0; c < 3; ++c)
      planes.push_back(b_.op("pad", {channel(value_, c), b_.like(value_, fill_[static_cast<size_t>(c)])},
                             {{"low", low}, {"high", high}}));
    value_ = b_.op("concat", planes, {{"axis", int64_t{kChannelAxis}}});
  }
  padded_ = true;
}

void Lowering::pad_stage(const Args& a) {
  const auto& v = a.numbers("border");
  std::array<int64_t, 4> border_of{};
  for (size_t i = 0; i < 4; ++i) border_of[i] = static_cast<int64_t>(v[i % v.size()]);
  set_fill(fill_from(a));
  const Dim w = w_ + border_of[0] + border_of[2], h = h_ + border_of[1] + border_of[3];
  const int64_t multiple = a.integer("multiple");
  const Dim more_x = multiple == 1 ? Dim(0) : Dim::mod(-w, multiple),
            more_y = multiple == 1 ? Dim(0) : Dim::mod(-h, multiple);
  border(border_of[1], Dim(border_of[3]) + more_y, border_of[0], Dim(border_of[2]) + more_x);
  resize_to(h + more_y, w + more_x);
}

void Lowering::resize_stage(const Args& a) {
  const auto [w, h] = size_from(a);
  const std::string& mode = a.text("mode");
  Dim to_h = h, to_w = w;
  int64_t least = 0;
  if (mode != "stretch") {
    const Dim from = mode == "shorter" ? Dim::min(h_, w_) : Dim::max(h_, w_);
    auto side = [&](const Dim& v) {
      if (v == from) return Dim(w);
      const Dim scaled = Dim::floor_div(v * w, from);
      return mode == "shorter" ? scaled : Dim::max(scaled, 1);
    };
    to_h = side(h_), to_w = side(w_);
    if (mode == "shorter") least = w;
  }
  const Filter filter = filter_from(a);
  const bool antialias = a.boolean("antialias");
  if (spec_.match != "none") {
    settle();
    Shape dims{b_.shape(value_)[0], to_h, to_w, channels_};
    value_ = b_.op(
        "picture_resample", {value_},
        {{"dims", dims}, {"filter", filter_name(filter)}, {"antialias", antialias}, {"match", spec_.match}});
  } else {
    if (sampled_ && !padded_ && last_filter_ == filter && last_antialias_ == antialias)
      fail(ErrorCode::unsupported_op, "a second resize, which the default mode joins with the first one",
           where_, "resize once, or set match");
    if (sampled_ || padded_) settle();
    resize_ = Resize{to_h, to_w, 0, 0};
    last_filter_ = filter, last_antialias_ = antialias;
    sampled_ = true;
  }
  resize_to(to_h, to_w);
  least_h_ = least_w_ = least;
}

void Lowering::reverse(int axis) {
  sample();
  value_ = b_.op("reverse", {value_}, {{"axes", Ints{axis}}});
}

void Lowering::recolour(const ColourMatrix& m) {
  if (drawn_colour_) return recolour_drawn(entries(m));
  if (padded_) settle();
  colour_ = colour_ ? multiply(m, *colour_) : m;
}

void Lowering::to_grey() {
  if (channels_ == 1) return;
  settle();
  const ValueId weights = b_.constant(from_doubles(DType::i32, {3}, {19595, 38470, 7471}));
  const ValueId sum =
      b_.reduce("reduce_sum", b_.mul(b_.cast(value_, DType::i32), weights), {kChannelAxis}, true);
  value_ =
      b_.cast(b_.op("shift_right", {b_.add(sum, b_.scalar(DType::i32, 0x8000)), b_.scalar(DType::i32, 16)}),
              DType::u8);
  channels_ = 1;
}

// Makes the pending resize: f32, neither rounded nor clamped.
void Lowering::sample() {
  if (!resize_) return;
  const Shape dims{b_.shape(value_)[0], h_, w_, channels_};
  ir::Attrs attrs = {{"dims", dims}, {"filter", filter_name(last_filter_)}, {"antialias", last_antialias_}};
  if (resize_->h != h_ || resize_->w != w_ || resize_->y != Dim(0) || resize_->x != Dim(0)) {
    attrs["size"] = Shape{resize_->h, resize_->w};
    attrs["origin"] = Shape{resize_->y, resize_->x};
  }
  value_ = b_.op("picture_resample", {value_}, std::move(attrs));
  resize_.reset();
}

ValueId Lowering::channel(ValueId v, int c) {
  return b_.op("slice", {v},
               {{"axes", Ints{kChannelAxis}}, {"starts", Shape{c}}, {"sizes", Shape{1}}, {"steps", Ints{1}}});
}

void Lowering::apply_colour() {
  if (!colour_ && !drawn_colour_) return;
  const Entries m = drawn_colour_ ? *drawn_colour_ : entries(*colour_);
  colour_.reset();
  drawn_colour_.reset();
  value_ = b_.cast(value_, DType::f32);
  if (channels_ == 1) {
    value_ = b_.add(b_.mul(value_, b_.add(b_.add(m[0], m[1]), m[2])), m[3]);
    return;
  }
  std::vector<ValueId> in, out;
  for (int c = 0; c < 3; ++c) in.push_back(channel(value_, c));
  for (size_t r = 0; r < 3; ++r)
    out.push_back(b_.add(b_.add(b_.mul(in[0], m[4 * r]), b_.mul(in[1], m[4 * r + 1])),
                         b_.add(b_.mul(in[2], m[4 * r + 2]), m[4 * r + 3])));
  value_ = b_.op("concat", out, {{"axis", int64_t{kChannelAxis}}});
}

ValueId Lowering::clamped() {
  return b_.op("clamp", {value_, b_.scalar(DType::f32, 0), b_.scalar(DType::f32, 255)});
}

// u8 pixels with nothing pending.
void Lowering::settle() {
  sample();
  apply_colour();
  if (b_.dtype(value_) == DType::f32)
    value_ = b_.cast(b_.add(clamped(), b_.scalar(DType::f32, 0.5)), DType::u8);
  sampled_ = padded_ = false;
}

ValueId Lowering::finish() {
  if (format_.dtype == DType::u8) {
    settle();
  } else {
    sample();
    apply_colour();
    if (b_.dtype(value_) == DType::f32) value_ = clamped();
    std::vector<double> mean, scale;
    for (size_t c = 0; c < static_cast<size_t>(channels_); ++c) {
      mean.push_back(format_.mean[c]);
      scale.push_back(format_.scale[c]);
    }
    const ValueId x = b_.cast(value_, DType::f32);
    value_ = b_.mul(b_.sub(x, b_.constant(from_doubles(DType::f32, {channels_}, mean))),
                    b_.constant(from_doubles(DType::f32, {channels_}, scale)));
    value_ = b_.cast(value_, format_.dtype);
  }
  if (format_.channels_first) value_ = b_.transpose(value_, {0, 3, 1, 2});
  return value_;
}

void Lowering::resize_to(const Dim& h, const Dim& w) {
  h_ = h, w_ = w;
  least_h_ = least_w_ = 0;
}

const SymbolRanges& Lowering::ranges() const {
  return b_.graph().symbols->ranges;
}

ir::ValueId lower_stages(ir::Builder& b, const PipelineSpec& spec, ir::ValueId pictures) {
  return Lowering(b, spec, pictures).run();
}

ir::ValueId lower_training(ir::Builder& b, const PipelineSpec& graph, ir::ValueId given, ir::ValueId epoch,
                           ir::ValueId indices) {
  GraphDraw draws(b, graph.seed, epoch, indices);
  if (!graph.stages.empty() && works_on_sound(graph.stages[0].op))
    return lower_sounds(b, graph, given, draws);
  return Lowering(b, graph, given, &draws).run();
}

ir::Graph lower_pipeline(const PipelineSpec& given, const std::string& output) {
  const PipelineSpec spec = evaluation_form(given);
  int64_t channels = 3;
  for (size_t i = 0; i < spec.stages.size(); ++i) {
    const StageSpec& s = spec.stages[i];
    if (s.op != "decode") continue;
    const auto colour = s.options.find("colour");
    if (colour != s.options.end() && colour->second.texts == std::vector<std::string>{"gray"}) channels = 1;
  }
  ir::Graph g("preprocess");
  constexpr int64_t kLargestSide = 1 << 20;
  g.symbols->ranges["N"] = {1, 1 << 20};
  for (const char* side : {"H", "W"}) g.symbols->ranges[side] = {1, kLargestSide};
  const ValueId in = g.add_input(
      ir::Type::tensor(DType::u8, {Dim::symbol("N"), Dim::symbol("H"), Dim::symbol("W"), channels}), "image");
  ir::Builder b(g);
  b.set_name("preprocess");
  g.add_output(lower_stages(b, spec, in), output);
  ir::verify(g, "preprocess");
  return g;
}

}  // namespace pelton::data
