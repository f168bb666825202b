// SPDX-License-Identifier: Apache-2.0
// Convolution as a product of weights [O/G, C/G * K...] with columns of taps [C/G * K..., positions], a chunk
// of output positions at a time; the transpose scatters the product back. All in f64, which holds 8-bit sums
// exactly.
#include "ir/ops/conv_eval.h"

#include <algorithm>

#include "ir/ops/gemm.h"
#include "ir/ops/window.h"

namespace pelton::ir {
namespace {

constexpr int64_t kChunk = 512;  // output positions a product

// Letters as in conv.cc, for one group.
struct Geometry {
  ConcreteWindow window;
  Dims spatial, out_spatial;  // of x and of the result
  int64_t positions = 0, taps = 0, pixels = 0;
};

Geometry geometry(const EvalContext& c, bool transposed) {
  const Dims &x = c.in(0).dims(), &w = c.in(1).dims();
  Geometry g;
  g.window = concrete_window(c, Dims(w.begin() + 2, w.end()));
  g.spatial.assign(x.begin() + 2, x.end());
  const Ints* extra = transposed ? &c.node.get_ints("output_padding") : nullptr;
  for (size_t i = 0; i < g.spatial.size(); ++i) {
    if (!transposed) {
      g.out_spatial.push_back(g.window.out_size(i, g.spatial[i]));
      continue;
    }
    int64_t size = (g.spatial[i] - 1) * g.window.strides[i] + g.window.extent(i) +
                   (extra->empty() ? 0 : (*extra)[i]) - g.window.low[i] - g.window.high[i];
    if (size < 0) c.refuse(ErrorCode::bad_shape, cat("would yield size ", size, " along spatial axis ", i));
    g.out_spatial.push_back(size);
  }
  g.positions = element_count(transposed ? g.spatial : g.out_spatial);
  g.taps = element_count(g.window.kernel);
  g.pixels = element_count(transposed ? g.out_spatial : g.spatial);
  return g;
}

// For window positions [from, to): offset in the image of every tap, or -1 outside; [taps, to - from].
std::vector<int64_t> tap_offsets(const Geometry& g, const Dims& image, const Dims& grid, int64_t from,
                                 int64_t to) {
  std::vector<int64_t> offsets;
  offsets.reserve(static_cast<size_t>(g.taps * (to - from)));
  Dims strides = row_major_strides(image), grid_strides = row_major_strides(grid);
  for_each_index(g.window.kernel, [&](const Dims& tap) {
    for (int64_t p = from; p < to; ++p) {
      int64_t at = 0;
      for (size_t d = 0; d < image.size(); ++d) {
        int64_t position = g.window.position(d, p / grid_strides[d] % grid[d], tap[d]);
        if (position < 0 || position >= image[d]) {
          at = -1;
          break;
        }
        at += position * strides[d];
      }
      offsets.push_back(at);
    }
  });
  return offsets;
}

std::vector<double> minus_zero(const EvalContext& c, size_t operand, size_t zero) {
  std::vector<double> x = to_doubles(c.in(operand));
  if (!c.has(zero)) return x;
  std::vector<double> z = to_doubles(c.in(zero));
  size_t run = x.size() / std::max<size_t>(1, z.size());  // one zero point, or one a leading slice
  for (size_t i = 0; i < x.size(); ++i) x[i] -= z[i / run];
  return x;
}

}  // namespace

void eval_conv(EvalContext& c) {
  Geometry g = geometry(c, false);
  const Dims& w_dims = c.in(1).dims();
  int64_t groups = c.node.get_int("groups"), batch = c.in(0).dims()[0], channels = c.in(0).dims()[1],
          outputs = w_dims[0];
  if (channels != w_dims[1] * groups || outputs % groups)
    c.refuse(ErrorCode::bad_shape, cat("has data with ", channels, " channels, but weights ", w_dims, " in ",
                                       groups, " groups need ", w_dims[1] * groups));
  int64_t in_group = w_dims[1], out_group = outputs / groups, depth = in_group * g.taps;
  std::vector<double> x = minus_zero(c, 0, 3), w = minus_zero(c, 1, 4), bias;
  if (c.has(2)) bias = to_doubles(c.in(2));
  std::vector<double> out(static_cast<size_t>(batch * outputs * g.positions)), columns, product;
  for (int64_t from = 0; from < g.positions; from += kChunk) {
    int64_t to = std::min(from + kChunk, g.positions), width = to - from;
    std::vector<int64_t> offsets = tap_offsets(g, g.spatial, g.out_spatial, from, to);
    for (int64_t n = 0; n < batch; ++n)
      for (int64_t group = 0; group < groups; ++group) {
        columns.resize(static_cast<size_t>(depth * width));
        double* column = columns.data();
        for (int64_t q = 0; q < in_group; ++q) {
          const double* image = x.data() + (n * channels + group * in_group + q) * g.pixels;
          for (int64_t at : offsets) *column++ = at < 0 ? 0.0 : image[at];
        }
        product.assign(static_cast<size_t>(out_group * width), 0.0);
        reference_gemm(out_group, width, depth, w.data() + group * out_group * depth, columns.data(),
                       product.data());
        for (int64_t o = 0; o < out_group; ++o) {
          int64_t channel = group * out_group + o;
          double add = bias.empty() ? 0 : bias[static_cast<size_t>(channel)];
          double* row = out.data() + (n * outputs + channel) * g.positions + from;
          for (int64_t p = 0; p < width; ++p) row[p] = product[static_cast<size_t>(o * width + p)] + add;
        }
      }
  }
  Dims dims{batch, outputs};
  dims.insert(dims.end(), g.out_spatial.begin(), g.out_spatial.end());
  if (is_float(c.out_dtype()))
    c.out(0, from_doubles(c.out_dtype(), dims, out));
  else
    c.out(0, from_ints(c.out_dtype(), dims, std::vector<int64_t>(out.begin(), out.end())));
}

void eval_conv_transpose(EvalContext& c) {
  Geometry g = geometry(c, true);
  const Dims& w_dims = c.in(1).dims();
  int64_t groups = c.node.get_int("groups"), batch = c.in(0).dims()[0], channels = c.in(0).dims()[1];
  int64_t in_group = channels / groups, out_group = w_dims[1], outputs = out_group * groups,
          depth = out_group * g.taps;
  if (channels != w_dims[0] || channels % groups)
    c.refuse(ErrorCode::bad_shape,
             cat("has data with ", channels, " channels in ", groups, " groups, but weights ", w_dims));
  std::vector<double> x = to_doubles(c.in(0)), w = to_doubles(c.in(1)), bias;
  if (c.has(2)) bias = to_doubles(c.in(2));
  std::vector<double> out(static_cast<size_t>(batch * outputs * g.pixels), 0.0), slab, columns;
  // Weights of a group as [out_group * taps, in_group].
  std::vector<double> w_t(w.size());
  for (int64_t q = 0; q < channels; ++q)
    for (int64_t e = 0; e < depth; ++e)
      w_t[static_cast<size_t>((q / in_group * depth + e) * in_group + q % in_group)] =
          w[static_cast<size_t>(q * depth + e)];
  for (int64_t from = 0; from < g.positions; from += kChunk) {
    int64_t to = std::min(from + kChunk, g.positions), width = to - from;
    std::vector<int64_t> offsets = tap_offsets(g, g.out_spatial, g.spatial, from, to);
    for (int64_t n = 0; n < batch; ++n)
      for (int64_t group = 0; group < groups; ++group) {
        slab.clear();
        for (int64_t q = 0; q < in_group; ++q) {
          const double* image = x.data() + (n * channels + group * in_group + q) * g.positions + from;
          slab.insert(slab.end(), image, image + width);
        }
        columns.assign(static_cast<size_t>(depth * width), 0.0);
        reference_gemm(depth, width, in_group, w_t.data() + group * depth * in_group, slab.data(),
                       columns.data());
        const double* column = columns.data();
        for (int64_t o = 0; o < out_group; ++o) {
          double* image = out.data() + (n * outputs + group * out_group + o) * g.pixels;
          for (int64_t at : offsets) {
            if (at >= 0) image[at] += *column;
            ++column;
          }
        }
      }
  }
  if (!bias.empty())
    for (size_t i = 0; i < out.size(); ++i)
      out[i] += bias[i / static_cast<size_t>(g.pixels) % static_cast<size_t>(outputs)];
  Dims dims{batch, outputs};
  dims.insert(dims.end(), g.out_spatial.begin(), g.out_spatial.end());
  c.out(0, from_doubles(c.out_dtype(), dims, out));
}

}  // namespace pelton::ir
