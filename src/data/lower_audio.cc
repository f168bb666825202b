// SPDX-License-Identifier: Apache-2.0
#include "data/lower_audio.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "data/audio/audio.h"
#include "data/evaluation.h"
#include "data/ops/audio_options.h"
#include "data/ops/stage.h"

namespace pelton::data {

using ir::Ints;
using ir::ValueId;

namespace {

constexpr int64_t kLongestTransform = 4096;  // longer ones have no kernel on CPUs
constexpr int kBandAxis = 1, kFrameAxis = 2;
constexpr uint32_t kFirstMask = 64;  // slot of spec_augment's first draw

Args args_of(const StageSpec& s) {
  Options options = s.options;
  options.erase("device");
  options.erase("when");
  return Args(stage_kind(s.op, s.where).schema, options, s.where);
}

class SoundLowering {
 public:
  SoundLowering(ir::Builder& b, ValueId sounds, GraphDraw& draws) : b_(b), value_(sounds), draws_(draws) {}

  void stage(const StageSpec& s, uint32_t number) {
    const Args a = args_of(s);
    if (s.op == "preemphasis") {
      preemphasis(a.number("coefficient"));
    } else if (s.op == "spectrogram") {
      SpectrogramOptions o = spectrogram_options(a);
      o.power = a.number("power");
      spectrum(o);
    } else if (s.op == "mel_spectrogram") {
      spectrum(spectrogram_options(a));
      filter(mel_filters_of(a));
    } else if (s.op == "to_decibels") {
      decibels(a.number("reference"), a.number("floor"), a.number("top_db"));
    } else if (s.op == "mfcc") {
      spectrum(spectrogram_options(a));
      filter(mel_filters_of(a));
      decibels(1, kMfccFloor, kMfccTop);
      filter(cosine_table(a.integer("mels"), a.integer("coefficients")));
    } else if (s.op == "spec_augment") {
      mask(a, number);
    } else {
      fail(ErrorCode::unsupported_op, cat("stage '", s.op, "' has no compiled form"), s.where);
    }
  }
  ValueId result() const { return value_; }

 private:
  ValueId f32(double v) { return b_.scalar(DType::f32, v); }
  ValueId part(ValueId v, int axis, int64_t start, int64_t size) {
    return b_.op(
        "slice", {v},
        {{"axes", Ints{axis}}, {"starts", Shape{start}}, {"sizes", Shape{size}}, {"steps", Ints{1}}});
  }

  void preemphasis(double coefficient) {
    const int64_t n = b_.shape(value_)[1].value();
    ValueId before = part(value_, 1, 0, 1);
    if (n > 1) before = b_.op("concat", {before, part(value_, 1, 0, n - 1)}, {{"axis", int64_t{1}}});
    value_ = b_.sub(value_, b_.mul(before, f32(coefficient)));
  }

  // [N, samples] to [N, bins, frames].
  void spectrum(const SpectrogramOptions& o) {
    const int64_t n = b_.shape(value_)[1].value(), frames = frame_count(n, o);
    std::vector<int64_t> at;  // mirrored ends are part of the table
    for (int64_t f = 0; f < frames; ++f)
      for (int64_t i = 0; i < o.fft; ++i) at.push_back(frame_sample(f, i, n, o));
    const ValueId cut = b_.op("gather", {value_, b_.constant(Tensor::from<int64_t>({frames, o.fft}, at))},
                              {{"axis", int64_t{1}}});
    const ValueId windowed = b_.mul(cut, b_.constant(Tensor::from<float>({o.fft}, hann_window(o))));
    const Dim batch = b_.shape(value_)[0];
    const ValueId lines = b_.reshape(windowed, Shape{batch, Dim(frames), Dim(o.fft), Dim(1)});
    const ValueId parts = b_.op("fft", {lines}, {{"axis", int64_t{2}}, {"onesided", true}});
    value_ = b_.reduce("reduce_sum", b_.mul(parts, parts), {3}, false);
    if (o.power == 1)
      value_ = b_.op("sqrt", {value_});
    else if (o.power != 2)
      value_ = b_.op("pow", {value_, f32(o.power / 2)});
    value_ = b_.transpose(value_, {0, 2, 1});
  }

  // The same rows for every sample: [m, bands] times [N, bands, frames].
  void filter(const Tensor& rows) { value_ = b_.matmul(b_.constant(rows), value_); }

  void decibels(double reference, double floor, double top_db) {
    const ValueId ratio = b_.mul(b_.op("max", {value_, f32(floor)}), f32(1 / reference));
    value_ = b_.mul(b_.op("log", {ratio}), f32(10 / std::numbers::ln10));
    if (top_db <= 0) return;
    const ValueId top = b_.reduce("reduce_max", value_, {kBandAxis, kFrameAxis}, true);
    value_ = b_.op("max", {value_, b_.sub(top, f32(top_db))});
  }

  // As the host's stage: widths and places of bands and of times, drawn in turn.
  void mask(const Args& a, uint32_t number) {
    const int64_t bands = a.integer("bands"), times = a.integer("times");
    std::vector<uint32_t> slots;
    for (int64_t i = 0; i < 2 * (bands + times); ++i) slots.push_back(kFirstMask + static_cast<uint32_t>(i));
    if (slots.empty()) return;
    draws_.begin(number, slots);
    ValueId hidden;
    uint32_t slot = kFirstMask;
    auto add = [&](int axis, int64_t widest) {
      const int64_t size = b_.shape(value_)[static_cast<size_t>(axis)].value();
      auto i64 = [&](int64_t v) { return b_.scalar(DType::i64, static_cast<double>(v)); };
      const ValueId width = b_.op("min", {draws_.below(slot, i64(widest + 1)), i64(size)});
      const ValueId start = draws_.below(slot + 1, b_.sub(i64(size + 1), width));
      Shape along{1, 1, 1};
      along[static_cast<size_t>(axis)] = size;
      const ValueId at = b_.op("iota", {}, {{"dims", along}, {"axis", int64_t{axis}}, {"dtype", DType::i64}});
      auto each = [&](ValueId v) { return b_.unsqueeze(v, {1, 2}); };
      const ValueId inside =
          b_.op("and", {b_.op("ge", {at, each(start)}), b_.op("lt", {at, each(b_.add(start, width))})});
      hidden = hidden ? b_.op("or", {hidden, inside}) : inside;
      slot += 2;
    };
    for (int64_t i = 0; i < bands; ++i) add(kBandAxis, a.integer("band_width"));
    for (int64_t i = 0; i < times; ++i) add(kFrameAxis, a.integer("time_width"));
    value_ = b_.select(hidden, f32(a.number("value")), value_);
  }

  ir::Builder& b_;
  ValueId value_;
  GraphDraw& draws_;
};

}  // namespace

bool works_on_sound(const std::string& op) {
  static const std::vector<StageKind> kinds = audio_stage_kinds();
  return std::ranges::any_of(kinds, [&](const StageKind& k) { return k.schema.name == op; });
}

SoundForm sound_behind(const StageSpec& s, const SoundForm& before) {
  using Kind = SoundForm::Kind;
  const Args a = args_of(s);
  SoundForm f = before;
  if (s.op == "decode_audio") return {Kind::open, a.boolean("mono"), 0, 0, 0};
  if (s.op == "fit_audio") return {Kind::signal, before.mono, a.integer("samples"), 0, 0};
  if (s.op == "preemphasis" || s.op == "to_decibels" || s.op == "spec_augment") return f;
  if (s.op != "spectrogram" && s.op != "mel_spectrogram" && s.op != "mfcc")
    return {Kind::open, f.mono, 0, 0, 0};
  if (f.kind != Kind::signal) return {};
  const SpectrogramOptions o = spectrogram_options(a);
  f.kind = Kind::spectrum;
  f.frames = o.centre || f.samples >= o.fft ? frame_count(f.samples, o) : 0;
  f.bands = s.op == "mfcc"              ? a.integer("coefficients")
            : s.op == "mel_spectrogram" ? a.integer("mels")
                                        : o.fft / 2 + 1;
  return f;
}

bool sound_has_form(const StageSpec& s, const SoundForm& before) {
  using Kind = SoundForm::Kind;
  if (before.kind == Kind::open || !before.mono) return false;
  if (s.op == "to_decibels") return before.kind == Kind::spectrum;
  if (s.op == "spec_augment") return before.kind == Kind::spectrum;
  if (before.kind != Kind::signal) return false;
  if (s.op == "preemphasis") return true;
  if (s.op != "spectrogram" && s.op != "mel_spectrogram" && s.op != "mfcc") return false;
  const Args a = args_of(s);
  const SpectrogramOptions o = spectrogram_options(a);
  return o.fft <= kLongestTransform && (o.centre || before.samples >= o.fft) &&
         (s.op != "mfcc" || a.integer("coefficients") <= a.integer("mels"));
}

ValueId lower_sounds(ir::Builder& b, const PipelineSpec& spec, ValueId sounds, GraphDraw& draws) {
  if (b.dtype(sounds) != DType::f32)
    fail(ErrorCode::bad_type, cat("sounds are ", b.type(sounds).str(), ", not f32"), spec.name);
  SoundLowering lowering(b, sounds, draws);
  for (size_t i = 0; i < spec.stages.size(); ++i) {
    const StageSpec& s = spec.stages[i];
    lowering.stage(s, s.number < 0 ? static_cast<uint32_t>(i) : static_cast<uint32_t>(s.number));
  }
  return lowering.result();
}

}  // namespace pelton::data
