// SPDX-License-Identifier: Apache-2.0
// Pictures: u8 [..., H, W, C] as decoders give them, C channels last. Row and inference; evaluation in
// picture_eval.cc, decomposition in picture_decompose.cc, arithmetic in ir/image.
#include "ir/ops/picture.h"

#include "ir/ops/common.h"

namespace pelton::ir {
namespace {

void infer_picture_resample(InferContext& c) {
  const auto filter = filter_from_name(c.node.get_text("filter"));
  const auto match = match_from_name(c.node.get_text("match"));
  c.require(filter.has_value(), ErrorCode::usage, "C1",
            cat("has no filter '", c.node.get_text("filter"), "'"));
  c.require(match.has_value(), ErrorCode::usage, "C1", cat("has no match '", c.node.get_text("match"), "'"));
  const Lack lack = lack_of(*match, *filter, c.node.get_bool("antialias"));
  c.require(lack.what.empty(), ErrorCode::usage, "C2", cat("cannot: ", lack.what, "; ", lack.fix));
  const Shape &x = c.shape(0), &dims = c.node.get_dims("dims");
  c.require(c.dtype(0) == DType::u8, ErrorCode::bad_type, "C3",
            cat("takes u8 pictures, not ", name(c.dtype(0))));
  c.require(x.size() >= 3 && (x.back() == Dim(1) || x.back() == Dim(3)), ErrorCode::bad_shape, "C3",
            cat("takes pictures [..., H, W, 1 or 3], not ", cat(x)));
  c.require(dims.size() == x.size(), ErrorCode::bad_shape, "C4",
            cat("needs ", x.size(), " result sizes, not ", dims.size()));
  for (size_t d = 0; d < dims.size(); ++d)
    if (d + 3 != dims.size() && d + 2 != dims.size()) c.same(dims[d], x[d], "C4");
  const Shape &size = c.node.get_dims("size"), &origin = c.node.get_dims("origin");
  const bool window = !size.empty() || !origin.empty();
  c.require(!window || (size.size() == 2 && origin.size() == 2), ErrorCode::usage, "C5",
            cat("needs two sizes and two places for a window, not ", size.size(), " and ", origin.size()));
  c.require(!window || *match == Match::none, ErrorCode::usage, "C5",
            "cannot make a part alone under match: the passes of other libraries see the whole result");
  for (size_t d = 0; window && d < 2; ++d) {
    const Dim end = origin[d] + dims[dims.size() - 3 + d];
    c.require(at_most(end, size[d], c.ranges()) != Tri::no && origin[d].range(c.ranges()).max >= 0,
              ErrorCode::bad_shape, "C5",
              cat("makes rows or columns ", origin[d].str(), " .. ", end.str(), " of ", size[d].str()));
  }
  c.output(0, *match == Match::none ? DType::f32 : DType::u8, dims);
}

double flops(const Graph&, const Node& node, const std::vector<Dims>& in, const std::vector<Dims>& out) {
  const double support = filter_support(*filter_from_name(node.get_text("filter")));
  double sum = 0;
  for (size_t d = out[0].size() - 3; d + 1 < out[0].size(); ++d) {
    const auto from = static_cast<double>(in[0][d]),
               to = static_cast<double>(std::max<int64_t>(1, out[0][d]));
    const double widen = node.get_bool("antialias") ? std::max(1.0, from / to) : 1.0;
    sum += 4 * support * widen;
  }
  return sum * static_cast<double>(element_count(out[0]));
}

}  // namespace

std::optional<Filter> filter_from_name(std::string_view name) {
  constexpr std::string_view names[] = {"nearest", "box", "linear", "hamming", "cubic", "lanczos"};
  for (size_t i = 0; i < std::size(names); ++i)
    if (names[i] == name) return static_cast<Filter>(i);
  return std::nullopt;
}

std::optional<Match> match_from_name(std::string_view name) {
  constexpr std::string_view names[] = {"none", "pillow", "torchvision", "opencv"};
  for (size_t i = 0; i < std::size(names); ++i)
    if (names[i] == name) return static_cast<Match>(i);
  return std::nullopt;
}

void add_picture(OpRows& rows) {
  OpDef row;
  row.name = "picture_resample";
  row.family = Family::composite;
  row.attrs = {{"dims", AttrKind::dims, {}},
               {"filter", AttrKind::text, Attr(std::string("linear"))},
               {"antialias", AttrKind::boolean, Attr(true)},
               {"match", AttrKind::text, Attr(std::string("none"))},
               {"size", AttrKind::dims, Attr(Shape{})},
               {"origin", AttrKind::dims, Attr(Shape{})}};
  row.constraints = {"C1: filter and match exist", "C2: the library to match has that filter",
                     "C3: u8 pictures of 1 or 3 channels", "C4: only height and width change",
                     "C5: a window lies in the resized picture, in the default mode only"};
  row.infer = infer_picture_resample;
  row.eval = eval_picture_resample;
  row.decompose = decompose_picture_resample;
  row.flops = flops;
  row.sharding = "n*->n*";
  row.batching = "merge_batch";
  rows.push_back(std::move(row));
}

}  // namespace pelton::ir
