// SPDX-License-Identifier: Apache-2.0
#include "backend/cuda/pool/excitation.h"

#include <algorithm>

#include "backend/cuda/aligned.h"
#include "backend/cuda/own/move_taps.h"
#include "backend/cuda/own/steps.h"
#include "ir/op.h"
#include "tensor/transpose.h"

namespace pelton::backend::cuda {
namespace {

const ir::Node* made_by(const ir::Graph& g, ir::ValueId v, std::string_view op) {
  const ir::NodeId id = g[v].producer;
  return id && g[id].is(op) ? &g[id] : nullptr;
}

// v = act(conv1x1(u, w, b)).
bool layer(const ir::Graph& g, ir::ValueId v, int& w, ExcitationForm::Bias& b, EpilogueStep& act,
           ir::ValueId& u) {
  const ir::NodeId id = g[v].producer;
  if (!id) return false;
  const std::optional<EpilogueStep> step = step_of(g[id]);
  if (!step) return false;
  act = *step;
  const ir::Node* conv = made_by(g, g[id].inputs[0], "conv");
  if (!conv || conv->get_int("groups") != 1) return false;
  const Shape& shape = g.type(conv->inputs[1]).shape;
  for (size_t d = 2; d < shape.size(); ++d)
    if (!(shape[d] == Dim(1))) return false;
  for (int64_t s : conv->get_ints("strides"))
    if (s != 1) return false;
  for (const char* side : {"low", "high"})
    for (const Dim& d : conv->get_dims(side))
      if (!(d == Dim(0))) return false;
  w = input_of(g, conv->inputs[1]);
  if (w < 0) return false;
  if (conv->inputs.size() > 2 && conv->inputs[2]) {
    b.input = input_of(g, conv->inputs[2]);
    if (b.input < 0) {
      const Tensor* t = g.constant(conv->inputs[2]);
      if (!t || t->dtype() != g.type(v).dtype) return false;
      b.constant = *t;
    }
  }
  u = conv->inputs[0];
  return true;
}

bool is_mean_of_places(const ir::Graph& g, ir::ValueId v, ir::ValueId x) {
  const ir::Node* n = made_by(g, v, "reduce_mean");
  if (!n || n->inputs[0] != x || !n->get_bool("keep_dims")) return false;
  ir::Ints axes = n->get_ints("axes");
  for (int64_t& a : axes)
    if (a < 0) a += g.type(x).rank();
  std::sort(axes.begin(), axes.end());
  ir::Ints all;
  for (int64_t a = 2; a < g.type(x).rank(); ++a) all.push_back(a);
  return axes == all;
}

}  // namespace

int input_of(const ir::Graph& g, ir::ValueId v) {
  for (size_t i = 0; i < g.inputs.size(); ++i)
    if (g.inputs[i] == v) return static_cast<int>(i);
  return -1;
}

ExcitationForm parse_excitation(const ir::Graph& g, ir::ValueId gate, ir::ValueId x) {
  ExcitationForm f;
  ir::ValueId inner, mean;
  if (layer(g, gate, f.w2, f.b2, f.act2, inner) && layer(g, inner, f.w1, f.b1, f.act1, mean) &&
      is_mean_of_places(g, mean, x))
    return f;
  f = {};
  f.reason = "is not a mean and two products of places with their activations";
  return f;
}

std::string refuse_excitation(const ExcitationForm& f, const ir::Graph& graph, ir::NodeId id, DType x) {
  if (!elem_of(x)) return cat("needs f32, f16 or bf16, got ", name(x));
  for (int i : {f.w1, f.b1.input, f.w2, f.b2.input})
    if (i >= 0 && input_type(graph, id, static_cast<size_t>(i)).dtype != x) return "mixes element types";
  const Shape& w1 = input_type(graph, id, static_cast<size_t>(f.w1)).shape;
  if (!w1[0].is_const() || !w1[1].is_const() || w1[0].value() > kSqueezeExciteMaxHidden ||
      w1[1].value() > kSqueezeExciteMaxChannels || w1[1].value() % 8 != 0)
    return cat("needs a multiple of 8 up to ", kSqueezeExciteMaxChannels, " channels and up to ",
               kSqueezeExciteMaxHidden, " inner ones, got ", w1[1].str(), " and ", w1[0].str());
  const Shape& w2 = input_type(graph, id, static_cast<size_t>(f.w2)).shape;
  if (!(w2[0] == w1[1])) return cat("makes ", w2[0].str(), " factors of ", w1[1].str(), " channels");
  return {};
}

Excitation::Excitation(const ExcitationForm& form, const Instance& instance, const TensorSpec& x)
    : form_(form) {
  SqueezeExcite& g = fixed_;
  g.type = elem(x.dtype);
  g.n = static_cast<int>(x.dims[0]);
  g.c = static_cast<int>(x.dims[1]);
  g.places = static_cast<int>(x.count() / (x.dims[0] * x.dims[1]));
  g.hidden = static_cast<int>(instance.inputs[static_cast<size_t>(form.w1)].dims[0]);
  g.act1 = form.act1;
  g.act2 = form.act2;
  // The kernel reads the second weights as [hidden, channels].
  const Tensor& w2 = instance.constants[static_cast<size_t>(form.w2)];
  g.fixed_weights = w2.defined() && instance.constants[static_cast<size_t>(form.w1)].defined();
  if (w2.defined())
    w2_ = shared_packed(w2, "transposed", [&] {
      return upload(transposed(w2.reshaped({g.c, g.hidden})), "weights");
    });
  else
    scratch_bytes_ = aligned(static_cast<int64_t>(g.c) * g.hidden * elem_bytes(g.type));
  auto bias = [](const ExcitationForm::Bias& b) {
    if (!b.constant.defined()) return Packed();
    return shared_packed(b.constant, "as it is", [&] { return upload(b.constant, "a bias"); });
  };
  b1_ = bias(form.b1);
  b2_ = bias(form.b2);
}

void Excitation::add_to(KernelNeeds& needs) const {
  for (const Packed& p : {w2_, b1_, b2_})
    if (p) needs.packed.push_back(p);
  if (w2_) needs.unread.push_back(static_cast<size_t>(form_.w2));
}

SqueezeExcite Excitation::bind(const RunArgs& args, void* scratch) const {
  auto at = [&](int i) { return i < 0 ? nullptr : args.in[static_cast<size_t>(i)]; };
  SqueezeExcite s = fixed_;
  s.w1 = at(form_.w1);
  s.b1 = b1_ ? b1_->get() : at(form_.b1.input);
  s.b2 = b2_ ? b2_->get() : at(form_.b2.input);
  if (w2_) {
    s.w2 = w2_->get();
  } else {
    PELTON_CUDA(move_taps(at(form_.w2), scratch, elem_bytes(s.type), 1, s.c, s.hidden, stream_of(args)));
    s.w2 = scratch;
  }
  return s;
}

}  // namespace pelton::backend::cuda
