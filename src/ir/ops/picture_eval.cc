// SPDX-License-Identifier: Apache-2.0
#include "ir/ops/common.h"
#include "ir/ops/picture.h"

namespace pelton::ir {

PictureResample::PictureResample(const Node& node, const Dims& from, const Dims& to, const Dims& size,
                                 const Dims& origin)
    : filter(*filter_from_name(node.get_text("filter"))),
      match(*match_from_name(node.get_text("match"))),
      antialias(node.get_bool("antialias")) {
  const size_t rank = from.size();
  constexpr int64_t kLargest = int64_t{1} << 24;
  for (size_t d = rank - 3; d + 1 < rank; ++d)
    if (from[d] > kLargest || to[d] > kLargest)
      fail(ErrorCode::limit, cat("a picture of ", from[rank - 3], " rows of ", from[rank - 2], " pixels, to ",
                                 to[rank - 3], " of ", to[rank - 2]));
  height = static_cast<int>(from[rank - 3]);
  width = static_cast<int>(from[rank - 2]);
  channels = static_cast<int>(from[rank - 1]);
  out_height = static_cast<int>(to[rank - 3]);
  out_width = static_cast<int>(to[rank - 2]);
  if (height < 1 || width < 1) fail(ErrorCode::bad_shape, "there is nothing to sample in an empty picture");
  if (out_height < 0 || out_width < 0)
    fail(ErrorCode::bad_shape, "a picture cannot be made smaller than empty");
  auto axis = [&](size_t d, int source, int n) {
    Axis a = Axis::whole(source);
    if (size.empty()) {
      if (n > 0) a.resize(n);
      a.n = n;
      return a;
    }
    if (origin[d] < 0 || size[d] < 1 || size[d] > kLargest || origin[d] + n > size[d])
      fail(ErrorCode::bad_shape, cat("the window ", origin[d], " .. ", origin[d] + n,
                                     " does not lie in the resized picture of ", size[d]));
    a.resize(static_cast<int>(size[d]));
    a.crop(static_cast<int>(origin[d]), n);
    return a;
  };
  y = axis(0, height, out_height);
  x = axis(1, width, out_width);
}

void untile(const float* tile, int rows, int width, int channels, float* out) {
  for (int r = 0; r < rows; ++r)
    for (int i = 0; i < width; ++i)
      for (int c = 0; c < channels; ++c)
        *out++ = tile[(static_cast<ptrdiff_t>(c) * width + i) * kTileRows + r];
}

void eval_picture_resample(EvalContext& c) {
  const Tensor& in = c.in(0);
  const Dims to = c.dims("dims");
  Tensor out = Tensor::zeros(c.out_dtype(), to);
  if (out.count() == 0) return c.out(0, std::move(out));
  const PictureResample r(c.node, in.dims(), to, c.dims("size"), c.dims("origin"));
  const int64_t source = int64_t{r.height} * r.width * r.channels,
                result = int64_t{r.out_height} * r.out_width * r.channels, pictures = out.count() / result;
  auto view = [&](int64_t p) {
    return PlaneView{
        in.as<uint8_t>() + p * source, ptrdiff_t{r.width} * r.channels, r.width, r.height, r.channels, 0, 0};
  };
  if (r.match != Match::none) {
    const auto resize = exact_resize(r.match, r.x, r.y, r.filter, r.antialias, r.channels);
    std::vector<double> scratch(static_cast<size_t>(resize->scratch_bytes() / 8 + 1));
    for (int64_t p = 0; p < pictures; ++p)
      resize->run(view(p), out.as_mutable<uint8_t>() + p * result, scratch.data());
    return c.out(0, std::move(out));
  }
  const FilterTable tx = filter_table(r.x, r.filter, r.antialias),
                    ty = filter_table(r.y, r.filter, r.antialias);
  for (int64_t p = 0; p < pictures; ++p) {
    PlaneResampler resampler(view(p), tx, ty);
    std::vector<float> tile(resampler.tile_floats());
    for (int y = 0; y < r.out_height; y += kTileRows) {
      const int rows = std::min(kTileRows, r.out_height - y);
      resampler.tile(y, rows, tile.data());
      untile(tile.data(), rows, r.out_width, r.channels,
             out.as_mutable<float>() + p * result + int64_t{y} * r.out_width * r.channels);
    }
  }
  c.out(0, std::move(out));
}

}  // namespace pelton::ir
