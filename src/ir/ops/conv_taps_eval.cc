// SPDX-License-Identifier: Apache-2.0
#include <cmath>

#include "ir/ops/conv_taps.h"
#include "ir/ops/window.h"

namespace pelton::ir {
namespace {

// Bilinear read of a [height, width] plane with zeros around it.
double bilinear(const double* plane, int64_t height, int64_t width, double y, double x) {
  if (!(y > -1 && y < static_cast<double>(height) && x > -1 && x < static_cast<double>(width))) return 0;
  auto top = static_cast<int64_t>(std::floor(y)), left = static_cast<int64_t>(std::floor(x));
  double down = y - static_cast<double>(top), right = x - static_cast<double>(left), sum = 0;
  for (int64_t i : {0, 1})
    for (int64_t j : {0, 1}) {
      int64_t row = top + i, column = left + j;
      double weight = (i ? down : 1 - down) * (j ? right : 1 - right);
      if (weight != 0 && row >= 0 && row < height && column >= 0 && column < width)
        sum += weight * plane[row * width + column];
    }
  return sum;
}

}  // namespace

// Tap k of output position (i, j) reads at its regular place plus offset[2k], offset[2k + 1] (rows, columns),
// times mask[k].
void eval_deform_conv(EvalContext& c) {
  const Dims &xd = c.in(0).dims(), &wd = c.in(1).dims();
  ConcreteWindow window = concrete_window(c, {wd[2], wd[3]});
  int64_t batch = xd[0], channels = xd[1], height = xd[2], width = xd[3], outputs = wd[0], depth = wd[1];
  int64_t rows = window.out_size(0, height), columns = window.out_size(1, width), taps = wd[2] * wd[3];
  int64_t groups = c.node.get_int("groups"), shared = c.node.get_int("offset_groups");
  if (channels != depth * groups || channels % shared || outputs % groups ||
      c.in(2).dims() != Dims{batch, 2 * shared * taps, rows, columns})
    c.refuse(ErrorCode::bad_shape,
             cat("has offsets ", c.in(2).dims(), " for data ", xd, " and weights ", wd));
  std::vector<double> x = to_doubles(c.in(0)), w = to_doubles(c.in(1)), offset = to_doubles(c.in(2)), bias,
                      mask;
  if (c.has(3)) bias = to_doubles(c.in(3));
  if (c.has(4)) mask = to_doubles(c.in(4));
  int64_t positions = rows * columns, out_group = outputs / groups;
  std::vector<double> out(static_cast<size_t>(batch * outputs * positions), 0.0);
  for (int64_t n = 0; n < batch; ++n)
    for (int64_t p = 0; p < positions; ++p)
      for (int64_t q = 0; q < channels; ++q)
        for (int64_t k = 0; k < taps; ++k) {
          int64_t moved = q / (channels / shared) * taps + k;  // which offset pair
          auto at = [&](int64_t part) {
            return offset[static_cast<size_t>(((n * shared * taps + moved) * 2 + part) * positions + p)];
          };
          double row = static_cast<double>(window.position(0, p / columns, k / wd[3])) + at(0);
          double column = static_cast<double>(window.position(1, p % columns, k % wd[3])) + at(1);
          double v = bilinear(x.data() + (n * channels + q) * height * width, height, width, row, column);
          if (!mask.empty()) v *= mask[static_cast<size_t>((n * shared * taps + moved) * positions + p)];
          int64_t group = q / depth;
          for (int64_t o = group * out_group; o < (group + 1) * out_group; ++o)
            out[static_cast<size_t>((n * outputs + o) * positions + p)] +=
                v * w[static_cast<size_t>((o * depth + q % depth) * taps + k)];
        }
  if (!bias.empty())
    for (size_t i = 0; i < out.size(); ++i)
      out[i] += bias[i / static_cast<size_t>(positions) % static_cast<size_t>(outputs)];
  c.out(0, from_doubles(c.in(0).dtype(), {batch, outputs, rows, columns}, out));
}

// y[n, c * K... + tap, position] = x[n, c, where the tap of the window reads], 0 in the pads.
void eval_im2col(EvalContext& c) {
  const Tensor& x = c.in(0);
  Dims spatial(x.dims().begin() + 2, x.dims().end()), grid, strides = row_major_strides(spatial);
  ConcreteWindow window = concrete_window(c, c.node.get_ints("kernel"));
  for (size_t d = 0; d < spatial.size(); ++d) grid.push_back(window.out_size(d, spatial[d]));
  int64_t planes = x.dims()[0] * x.dims()[1], pixels = element_count(spatial), i = 0;
  Tensor y = Tensor::zeros(x.dtype(),
                           {x.dims()[0], x.dims()[1] * element_count(window.kernel), element_count(grid)});
  for (int64_t plane = 0; plane < planes; ++plane)
    for_each_index(window.kernel, [&](const Dims& tap) {
      for_each_index(grid, [&](const Dims& o) {
        int64_t at = plane * pixels;
        bool inside = true;
        for (size_t d = 0; d < o.size(); ++d) {
          int64_t position = window.position(d, o[d], tap[d]);
          inside &= position >= 0 && position < spatial[d];
          at += position * strides[d];
        }
        if (inside) copy_element(y, i, x, at);
        ++i;
      });
    });
  c.out(0, std::move(y));
}

// The transpose of im2col: values that stand for one pixel are summed.
void eval_col2im(EvalContext& c) {
  const Tensor& x = c.in(0);
  Dims image = to_ints(c.in(1)), block = to_ints(c.in(2)), grid, strides = row_major_strides(image);
  if (image.size() != block.size())
    c.refuse(ErrorCode::bad_shape, cat("has image sizes ", image, " and block sizes ", block));
  for (size_t d = 0; d < image.size(); ++d)
    if (image[d] < 0 || block[d] < 1)
      c.refuse(ErrorCode::bad_shape, cat("has image sizes ", image, " and block sizes ", block));
  ConcreteWindow window = concrete_window(c, block);
  for (size_t d = 0; d < image.size(); ++d) grid.push_back(window.out_size(d, image[d]));
  int64_t taps = element_count(block), pixels = element_count(image);
  if (x.dims()[1] % taps || x.dims()[2] != element_count(grid))
    c.refuse(ErrorCode::bad_shape,
             cat("has columns ", x.dims(), " for blocks ", block, " at ", element_count(grid), " positions"));
  int64_t channels = x.dims()[1] / taps, planes = x.dims()[0] * channels;
  Dims to{x.dims()[0], channels};
  to.insert(to.end(), image.begin(), image.end());
  bool real = is_float(x.dtype());
  std::vector<double> sums(real ? static_cast<size_t>(planes * pixels) : 0, 0.0), values;
  std::vector<int64_t> whole_sums(real ? 0 : static_cast<size_t>(planes * pixels), 0), whole;
  if (real)
    values = to_doubles(x);
  else
    whole = to_ints(x);
  size_t i = 0;
  for (int64_t plane = 0; plane < planes; ++plane)
    for_each_index(block, [&](const Dims& tap) {
      for_each_index(grid, [&](const Dims& o) {
        int64_t at = plane * pixels;
        bool inside = true;
        for (size_t d = 0; d < o.size(); ++d) {
          int64_t position = window.position(d, o[d], tap[d]);
          inside &= position >= 0 && position < image[d];
          at += position * strides[d];
        }
        auto target = static_cast<size_t>(at);
        if (inside && real)
          sums[target] += values[i];
        else if (inside)
          whole_sums[target] = static_cast<int64_t>(static_cast<uint64_t>(whole_sums[target]) +
                                                    static_cast<uint64_t>(whole[i]));
        ++i;
      });
    });
  c.out(0, real ? from_doubles(x.dtype(), to, sums) : from_ints(x.dtype(), to, whole_sums));
}

}  // namespace pelton::ir
