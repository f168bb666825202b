// SPDX-License-Identifier: Apache-2.0
// Random ops. An element is a pure function of the run's seed, the attribute `seed`, the step, the node's
// stable id and the element's row-major index (base/philox.h). An attribute `stream` other than 0 stands for
// the stable id: so a backward pass draws the forward node's numbers again.
#include <cmath>

#include "ir/ops/composite.h"
#include "ir/random.h"

namespace pelton::ir {
namespace {

constexpr auto kType = ErrorCode::bad_type;

RandomStream stream(const EvalContext& c) {
  return random_stream(c.node, c.random);
}
double uniform(const RandomStream& s, int64_t i) {
  return static_cast<double>(s.uniform(static_cast<uint64_t>(i)));
}

void infer_generator(InferContext& c) {
  DType t = c.node.get_dtype("dtype");
  c.require(supports_float(t), kType, "C1", cat("does not yield ", name(t)));
  c.output(0, t, c.node.get_dims("dims"));
}
template <class F>
void generate(EvalContext& c, F&& f) {
  Tensor out = Tensor::zeros(c.node.get_dtype("dtype"), c.dims("dims"));
  for (int64_t i = 0; i < out.count(); ++i) out.set_double(i, f(i));
  c.out(0, std::move(out));
}
// The product and the sum are f32 operations on [0, 1), as kernels compute them.
void eval_uniform(EvalContext& c) {
  RandomStream s = stream(c);
  auto low = static_cast<float>(c.node.get_real("low")), high = static_cast<float>(c.node.get_real("high"));
  float span = high - low;
  generate(c, [&](int64_t i) {
    float scaled = s.uniform(static_cast<uint64_t>(i)) * span;
    return static_cast<double>(scaled + low);
  });
}
void eval_normal(EvalContext& c) {
  RandomStream s = stream(c);
  double mean = c.node.get_real("mean"), scale = c.node.get_real("scale");
  generate(c, [&](int64_t i) { return s.normal(static_cast<uint64_t>(i)) * scale + mean; });
}

void infer_bernoulli(InferContext& c) {
  require_float(c, 0, "C1");
  DType t = c.node.get_dtype("dtype");
  c.require(supports_number(t) || t == DType::boolean, kType, "C1", cat("does not yield ", name(t)));
  c.output(0, t, c.shape(0));
}
void eval_bernoulli(EvalContext& c) {
  RandomStream s = stream(c);
  const Tensor& p = c.in(0);
  Tensor out = Tensor::zeros(c.node.get_dtype("dtype"), p.dims());
  for (int64_t i = 0; i < p.count(); ++i) {
    bool yes = uniform(s, i) < p.get_double(i);
    if (is_float(out.dtype()))
      out.set_double(i, yes);
    else
      out.set_int(i, yes);
  }
  c.out(0, std::move(out));
}

// logits[N, K]: indices [N, samples] drawn with probabilities softmax(logits).
void infer_multinomial(InferContext& c) {
  require_float(c, 0, "C1");
  c.require(c.rank(0) == 2, ErrorCode::bad_shape, "C2", cat("needs logits[N,K], not ", cat(c.shape(0))));
  c.require(equal(c.shape(0)[1], 0, c.ranges()) != Tri::yes, ErrorCode::bad_shape, "C2",
            "draws from no classes");
  DType t = c.node.get_dtype("dtype");
  c.require(t == DType::i32 || t == DType::i64, kType, "C1", cat("yields i32 or i64, not ", name(t)));
  int64_t samples = c.node.get_int("samples");
  c.require(samples >= 0, ErrorCode::usage, "C2", cat("draws ", samples, " samples"));
  c.output(0, t, {c.shape(0)[0], Dim(samples)});
}
void eval_multinomial(EvalContext& c) {
  RandomStream s = stream(c);
  std::vector<double> logits = to_doubles(c.in(0));
  int64_t rows = c.in(0).dims()[0], classes = c.in(0).dims()[1], samples = c.node.get_int("samples");
  if (classes == 0) c.refuse(ErrorCode::bad_shape, "draws from no classes");
  Tensor out = Tensor::zeros(c.node.get_dtype("dtype"), {rows, samples});
  for (int64_t r = 0; r < rows; ++r) {
    const double* row = &logits[static_cast<size_t>(r * classes)];
    double top = -INFINITY, sum = 0;
    for (int64_t k = 0; k < classes; ++k) top = std::max(top, row[k]);
    for (int64_t k = 0; k < classes; ++k) sum += std::exp(row[k] - top);
    for (int64_t i = 0; i < samples; ++i) {
      double point = uniform(s, r * samples + i) * sum, passed = 0;
      int64_t k = 0, last = 0;
      for (; k < classes; ++k) {
        double p = std::exp(row[k] - top);
        if (p > 0) last = k;
        passed += p;
        if (point < passed) break;
      }
      out.set_int(r * samples + i, k < classes ? k : last);
    }
  }
  c.out(0, std::move(out));
}

// Keeps an element with probability 1 - ratio and scales it by 1 / (1 - ratio).
void infer_dropout(InferContext& c) {
  require_float(c, 0, "C1");
  require_float(c, 1, "C1");
  require_single(c, 1, "C2");
  c.output(0, c.dtype(0), c.shape(0));
  c.output(1, DType::boolean, c.shape(0));
}
void eval_dropout(EvalContext& c) {
  RandomStream s = stream(c);
  const Tensor& x = c.in(0);
  double ratio = c.in(1).get_double(0);
  if (!(ratio >= 0 && ratio < 1) && ratio != 1)
    c.refuse(ErrorCode::usage, cat("has ratio ", ratio, ", which is outside [0, 1]"));
  Tensor out = Tensor::zeros(x.dtype(), x.dims()), mask = Tensor::zeros(DType::boolean, x.dims());
  for (int64_t i = 0; i < x.count(); ++i) {
    bool keep = uniform(s, i) >= ratio;
    mask.set_int(i, keep);
    if (keep) out.set_double(i, x.get_double(i) / (1 - ratio));
  }
  c.out(0, std::move(out));
  c.out(1, std::move(mask));
}

double random_flops(const Graph&, const Node&, const std::vector<Dims>&, const std::vector<Dims>& out) {
  return 40 * static_cast<double>(element_count(out[0]));
}

OpDef random_row(std::string_view name, int inputs, std::vector<AttrDef> attrs, void (*infer)(InferContext&),
                 void (*eval)(EvalContext&)) {
  OpDef row;
  row.name = name;
  row.family = Family::random;
  row.min_inputs = row.max_inputs = inputs;
  row.attrs = std::move(attrs);
  const AttrDef seed{"seed", AttrKind::integer, Attr(int64_t{0})},
      stream{"stream", AttrKind::integer, Attr(int64_t{0})};
  row.attrs.push_back(seed);
  row.attrs.push_back(stream);
  row.constraints = {"C1: element types the op takes and yields"};
  row.infer = infer;
  row.eval = eval;
  row.flops = random_flops;
  row.effects = Effects::random;
  return row;
}

}  // namespace

RandomStream random_stream(const Node& node, const RandomKey& key) {
  auto seed = static_cast<uint64_t>(node.get_int("seed")),
       stream = static_cast<uint64_t>(node.get_int("stream"));
  return {key.seed ^ (seed * 0x9E3779B97F4A7C15u), key.step, stream ? stream : node.stable_id};
}

void add_random(OpRows& rows) {
  AttrDef dims{"dims", AttrKind::dims, {}}, dtype{"dtype", AttrKind::dtype, {}};
  auto real = [](std::string_view name, double v) { return AttrDef{name, AttrKind::real, Attr(v)}; };
  rows.push_back(random_row("random_uniform", 0, {dims, dtype, real("low", 0), real("high", 1)},
                            infer_generator, eval_uniform));
  rows.push_back(random_row("random_normal", 0, {dims, dtype, real("mean", 0), real("scale", 1)},
                            infer_generator, eval_normal));
  rows.push_back(random_row("bernoulli", 1, {dtype}, infer_bernoulli, eval_bernoulli));
  rows.push_back(random_row("multinomial", 1, {{"samples", AttrKind::integer, {}}, dtype}, infer_multinomial,
                            eval_multinomial));
  rows.back().constraints.push_back("C2: logits[N,K] of one class or more, no negative count");
  rows.push_back(random_row("dropout", 2, {}, infer_dropout, eval_dropout));
  rows.back().constraints.push_back("C2: one ratio");
  rows.back().min_outputs = 1;
  rows.back().max_outputs = 2;
}

}  // namespace pelton::ir
