// SPDX-License-Identifier: Apache-2.0
// Regions of interest and box selection: rows and inference. Evaluation in region_eval.cc. Letters: N batch,
// C channels or classes, H W image sizes, R regions, B boxes.
#include "ir/ops/region.h"

#include <algorithm>

#include "ir/builder.h"
#include "ir/ops/common.h"

namespace pelton::ir {
namespace {

constexpr auto kShape = ErrorCode::bad_shape;

void require_pooled(const InferContext& c, std::string_view tag) {
  c.require(c.node.get_int("height") >= 1 && c.node.get_int("width") >= 1, ErrorCode::usage, tag,
            cat("yields ", c.node.get_int("height"), " by ", c.node.get_int("width"), " cells"));
}

void infer_roi_align(InferContext& c) {
  c.require(
      supports_float(c.dtype(0)) && c.dtype(1) == c.dtype(0), ErrorCode::bad_type, "C1",
      cat("needs data and regions of one float type, not ", name(c.dtype(0)), " and ", name(c.dtype(1))));
  const Shape &x = c.shape(0), &rois = c.shape(1);
  c.require(x.size() == 4 && rois.size() == 2, kShape, "C2",
            cat("needs x[N,C,H,W] and regions [R,4], not ", cat(x), " and ", cat(rois)));
  c.same(rois[1], 4, "C2");
  c.require(is_int(c.dtype(2)) && c.rank(2) == 1, ErrorCode::bad_type, "C3",
            cat("needs integer batch indices of rank 1, not ", c.type(2).str()));
  c.same(c.shape(2)[0], rois[0], "C3");
  const std::string& mode = c.node.get_text("mode");
  c.require(mode == "avg" || mode == "max", ErrorCode::usage, "C4", cat("has no mode '", mode, "'"));
  constexpr int64_t kMostSamples = 1024;  // a side of a cell
  const int64_t samples = c.node.get_int("sampling");
  c.require(samples >= 0 && samples <= kMostSamples, ErrorCode::usage, "C4",
            cat("has ", samples, " samples a side, expected 0 to ", kMostSamples));
  require_pooled(c, "C4");
  c.output(0, c.dtype(0), {rois[0], x[1], c.node.get_int("height"), c.node.get_int("width")});
}

void infer_max_roi_pool(InferContext& c) {
  c.require(
      supports_float(c.dtype(0)) && c.dtype(1) == c.dtype(0), ErrorCode::bad_type, "C1",
      cat("needs data and regions of one float type, not ", name(c.dtype(0)), " and ", name(c.dtype(1))));
  const Shape &x = c.shape(0), &rois = c.shape(1);
  c.require(x.size() == 4 && rois.size() == 2, kShape, "C2",
            cat("needs x[N,C,H,W] and regions [R,5], not ", cat(x), " and ", cat(rois)));
  c.same(rois[1], 5, "C2");
  require_pooled(c, "C3");
  c.output(0, c.dtype(0), {rois[0], x[1], c.node.get_int("height"), c.node.get_int("width")});
}

void infer_nms(InferContext& c) {
  c.require(
      supports_float(c.dtype(0)) && c.dtype(1) == c.dtype(0), ErrorCode::bad_type, "C1",
      cat("needs boxes and scores of one float type, not ", name(c.dtype(0)), " and ", name(c.dtype(1))));
  const Shape &boxes = c.shape(0), &scores = c.shape(1);
  c.require(boxes.size() == 3 && scores.size() == 3, kShape, "C2",
            cat("needs boxes [N,B,4] and scores [N,C,B], not ", cat(boxes), " and ", cat(scores)));
  c.same(boxes[0], scores[0], "C2");
  c.same(boxes[1], scores[2], "C2");
  c.same(boxes[2], 4, "C2");
  c.require(is_int(c.dtype(2)), ErrorCode::bad_type, "C3",
            cat("needs the number of boxes as an integer, not ", name(c.dtype(2))));
  for (size_t i : {3, 4})
    c.require(supports_float(c.dtype(i)), ErrorCode::bad_type, "C3",
              cat("needs float thresholds, not ", name(c.dtype(i))));
  for (size_t i : {2, 3, 4})
    c.require(equal(element_count(c.shape(i)), 1, c.ranges()) != Tri::no, kShape, "C3",
              cat("needs single limits, not ", cat(c.shape(i))));
  Dim each = scores[2];
  auto limit = c.contents(2);
  if (limit && limit->size() == 1) each = Dim::max(0, Dim::min(each, (*limit)[0]));
  int64_t most = (scores[0] * scores[1] * each).range(c.ranges()).max;
  c.output(0, DType::i64, {c.fresh_size(0, 0, {0, most}), 3});
}

double roi_flops(const Graph&, const Node& node, const std::vector<Dims>&, const std::vector<Dims>& out) {
  auto samples = static_cast<double>(std::max<int64_t>(1, node.get_int("sampling")));
  return 8 * samples * samples * static_cast<double>(element_count(out[0]));
}

OpDef row_of(std::string_view name, int inputs, void (*infer)(InferContext&), void (*eval)(EvalContext&),
             std::vector<std::string_view> constraints) {
  OpDef row;
  row.name = name;
  row.family = Family::pooling;
  row.min_inputs = row.max_inputs = inputs;
  row.infer = infer;
  row.eval = eval;
  row.constraints = std::move(constraints);
  return row;
}

}  // namespace

void add_region(OpRows& rows) {
  AttrDef height{"height", AttrKind::integer, {}}, width{"width", AttrKind::integer, {}};
  AttrDef scale{"scale", AttrKind::real, Attr(1.0)};
  rows.push_back(row_of("roi_align", 3, infer_roi_align, eval_roi_align,
                        {"C1: data and regions have one float type", "C2: x[N,C,H,W] and regions [R,4]",
                         "C3: one integer batch index a region",
                         "C4: mode exists, sampling is 0 to 1024, the result has cells"}));
  rows.back().attrs = {height,
                       width,
                       {"sampling", AttrKind::integer, Attr(int64_t{0})},
                       scale,
                       {"mode", AttrKind::text, Attr(std::string("avg"))},
                       {"half_pixel", AttrKind::boolean, Attr(true)}};
  rows.back().flops = roi_flops;
  rows.push_back(row_of("max_roi_pool", 2, infer_max_roi_pool, eval_max_roi_pool,
                        {"C1: data and regions have one float type", "C2: x[N,C,H,W] and regions [R,5]",
                         "C3: the result has cells"}));
  rows.back().attrs = {height, width, scale};
  rows.back().precision = Precision::exact;
  rows.push_back(row_of("nms", 5, infer_nms, eval_nms,
                        {"C1: boxes and scores have one float type", "C2: boxes [N,B,4] and scores [N,C,B]",
                         "C3: one integer limit and two float thresholds"}));
  rows.back().attrs = {{"center_box", AttrKind::boolean, Attr(false)}};
  rows.back().precision = Precision::sensitive;
}

}  // namespace pelton::ir
