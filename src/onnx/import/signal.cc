// SPDX-License-Identifier: Apache-2.0
// Fourier transforms, windows, mel filters. Complex values are a last dimension of 2.
#include <cmath>
#include <numbers>

#include "onnx/import/helpers.h"
#include "onnx/import/table.h"

namespace pelton::onnx {
namespace {

void dft(NodeContext& c) {
  ValueId x = c.in(0);
  int64_t axis = c.opset < 20 ? c.get_int("axis", 1) : c.has(2) ? c.need_ints(2, "axis").at(0) : -2;
  std::vector<ValueId> inputs{x};
  if (c.has(1)) inputs.push_back(c.b.cast(to_scalar(c, c.in(1)), DType::i64));
  c.out(0, c.b.op("fft", inputs,
                  {{"axis", c.axis(axis, c.b.rank(x))},
                   {"inverse", c.get_int("inverse", 0) != 0},
                   {"onesided", c.get_int("onesided", 0) != 0}}));
}

// signal[B,T,1|2] -> frames[B,F,L,1|2] -> spectra[B,F,L or L/2+1,2]
void stft(NodeContext& c) {
  ValueId signal = c.in(0);
  Shape shape = c.b.shape(signal);
  if (shape.size() == 2) {
    signal = c.b.unsqueeze(signal, {2});
    shape = c.b.shape(signal);
  }
  int64_t step = c.need_ints(1, "frame_step").at(0);
  Dim length = c.has(3)   ? Dim(c.need_ints(3, "frame_length").at(0))
               : c.has(2) ? c.b.shape(c.in(2)).at(0)
                          : shape.at(1);
  int64_t frame = c.need_const(length, "the frame length");
  if (step < 1 || frame < 1) c.refuse(ErrorCode::bad_shape, cat("has frames of ", frame, " every ", step));
  Dim count = Dim::floor_div(shape.at(1) - frame, step) + 1;
  auto line = [&](Shape dims, int64_t axis) {
    return c.b.op("iota", {}, {{"dims", dims}, {"axis", axis}, {"dtype", DType::i64}});
  };
  ValueId at = c.b.add(c.b.mul(line({count, 1}, 0), c.b.scalar(DType::i64, static_cast<double>(step))),
                       line({1, frame}, 1));
  ValueId frames = c.b.op("gather", {signal, at}, {{"axis", int64_t{1}}});
  if (c.has(2)) frames = c.b.mul(frames, c.b.reshape(c.in(2), {frame, 1}));
  c.out(0, c.b.op("fft", {frames}, {{"axis", int64_t{2}}, {"onesided", c.get_int("onesided", 1) != 0}}));
}

// a - b cos(2 pi n / N) + d cos(4 pi n / N), N the size, one less when not periodic.
void window(NodeContext& c, double a, double b, double d) {
  const Dim n = c.sizes_in(0, "the window size").at(0);
  ValueId i = c.b.op("iota", {}, {{"dims", Shape{n}}, {"axis", int64_t{0}}, {"dtype", DType::f64}});
  Dim period = c.get_int("periodic", 1) != 0 ? n : n - 1;
  ValueId turns = c.b.cast(c.b.reshape(c.b.op("contents", {}, {{"dims", Shape{period}}}), {}), DType::f64);
  auto constant = [&](double v) { return c.b.scalar(DType::f64, v); };
  ValueId angle = c.b.div(c.b.mul(i, constant(2 * std::numbers::pi)), turns);
  ValueId y = c.b.sub(constant(a), c.b.mul(c.b.op("cos", {angle}), constant(b)));
  if (d != 0) y = c.b.add(y, c.b.mul(c.b.op("cos", {c.b.mul(angle, constant(2))}), constant(d)));
  c.out(0, c.b.cast(y, c.get_dtype("output_datatype", DType::f32)));
}
void hann(NodeContext& c) {
  window(c, 0.5, 0.5, 0);
}
void hamming(NodeContext& c) {
  window(c, 25.0 / 46, 21.0 / 46, 0);
}
void blackman(NodeContext& c) {
  window(c, 0.42, 0.5, 0.08);
}

// Triangular filters between mel-spaced edges, as whole spectrogram bins; [bins of the spectrum, mel bins].
void mel_weights(NodeContext& c) {
  int64_t bins = c.need_ints(0, "num_mel_bins").at(0), dft_length = c.need_ints(1, "dft_length").at(0),
          rate = c.need_ints(2, "sample_rate").at(0);
  double low = c.need_real(3, "lower_edge_hertz"), high = c.need_real(4, "upper_edge_hertz");
  int64_t rows = dft_length / 2 + 1;
  if (bins < 1 || dft_length < 1 || rate < 1 || bins > 1 << 16 || rows > (1 << 26) / bins)
    c.refuse(ErrorCode::bad_shape, cat("has ", bins, " bins, length ", dft_length, ", rate ", rate));
  auto mel = [](double hertz) { return 2595 * std::log10(1 + hertz / 700); };
  double first = mel(low), step = (mel(high) - first) / static_cast<double>(bins + 2);
  std::vector<int64_t> edges;
  for (int64_t i = 0; i < bins + 2; ++i) {
    double hertz = 700 * (std::pow(10.0, (static_cast<double>(i) * step + first) / 2595) - 1);
    edges.push_back(static_cast<int64_t>(
        std::floor(static_cast<double>(dft_length + 1) * hertz / static_cast<double>(rate))));
  }
  std::vector<double> w(static_cast<size_t>(rows * bins), 0.0);
  auto set = [&](int64_t row, int64_t column, double v) {
    if (row >= 0 && row < rows) w[static_cast<size_t>(row * bins + column)] = v;
  };
  for (int64_t i = 0; i < bins; ++i) {
    int64_t lower = edges[static_cast<size_t>(i)], centre = edges[static_cast<size_t>(i) + 1],
            upper = edges[static_cast<size_t>(i) + 2];
    if (centre == lower) set(centre, i, 1);
    for (int64_t j = lower; centre != lower && j <= centre; ++j)
      set(j, i, static_cast<double>(j - lower) / static_cast<double>(centre - lower));
    for (int64_t j = centre; upper != centre && j < upper; ++j)
      set(j, i, static_cast<double>(upper - j) / static_cast<double>(upper - centre));
  }
  c.out(0, c.b.constant(from_doubles(c.get_dtype("output_datatype", DType::f32), {rows, bins}, w)));
}

}  // namespace

void add_signal(ImportTable& table) {
  table.add("DFT", dft);
  table.add("STFT", stft);
  table.add("HannWindow", hann);
  table.add("HammingWindow", hamming);
  table.add("BlackmanWindow", blackman);
  table.add("MelWeightMatrix", mel_weights);
}

}  // namespace pelton::onnx
