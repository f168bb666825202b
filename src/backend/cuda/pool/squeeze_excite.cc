// SPDX-License-Identifier: Apache-2.0
// Groups of kind "squeeze_excite" (passes/squeeze_excite.h): x * act2(conv1x1(act1(conv1x1(mean(x))))).
#include "backend/cuda/own/squeeze_excite.h"
#include <algorithm>
#include <cstring>

#include "backend/cuda/implementations.h"
#include "backend/cuda/own/host.h"
#include "backend/cuda/own/move_taps.h"
#include "backend/cuda/own/steps.h"
#include "ir/op.h"

namespace pelton::backend::cuda {
namespace {

struct Parsed {
  std::string reason;
  int x = -1, w1 = -1, w2 = -1;  // indices of the outer node's inputs
  // Biases: an input, a constant of the body, or absent.
  struct Bias {
    int input = -1;
    Tensor constant;
  } b1, b2;
  EpilogueStep act1, act2;
};

class Parser {
 public:
  explicit Parser(const ir::Graph& body) : g_(body) {}
  Parsed run() {
    if (g_.outputs.size() != 1) return no("yields more than one result");
    const ir::Node* scale = made_by(g_.outputs[0], "mul");
    if (!scale) return no("does not end in a product");
    for (size_t side : {size_t{0}, size_t{1}}) {
      p_ = {};
      if (input_of(scale->inputs[side]) >= 0 && gate(scale->inputs[1 - side], scale->inputs[side])) return p_;
    }
    return no("is not a mean, two products of places and a product with the data");
  }

 private:
  Parsed no(std::string why) {
    p_ = {};
    p_.reason = std::move(why);
    return p_;
  }
  const ir::Node* made_by(ir::ValueId v, std::string_view op) const {
    const ir::NodeId id = g_[v].producer;
    return id && g_[id].is(op) ? &g_[id] : nullptr;
  }
  int input_of(ir::ValueId v) const {
    for (size_t i = 0; i < g_.inputs.size(); ++i)
      if (g_.inputs[i] == v) return static_cast<int>(i);
    return -1;
  }
  // v = act(conv1x1(u, w, b)); the activation may be absent only where `must` is false.
  bool layer(ir::ValueId v, int& w, Parsed::Bias& b, EpilogueStep& act, ir::ValueId& u) const {
    const ir::NodeId id = g_[v].producer;
    if (!id) return false;
    const std::optional<EpilogueStep> step = step_of(g_[id]);
    if (!step) return false;
    act = *step;
    const ir::Node* conv = made_by(g_[id].inputs[0], "conv");
    if (!conv || conv->get_int("groups") != 1) return false;
    const Shape& shape = g_.type(conv->inputs[1]).shape;
    for (size_t d = 2; d < shape.size(); ++d)
      if (!(shape[d] == Dim(1))) return false;
    for (int64_t s : conv->get_ints("strides"))
      if (s != 1) return false;
    for (const char* side : {"low", "high"})
      for (const Dim& d : conv->get_dims(side))
        if (!(d == Dim(0))) return false;
    w = input_of(conv->inputs[1]);
    if (w < 0) return false;
    if (conv->inputs.size() > 2 && conv->inputs[2]) {
      b.input = input_of(conv->inputs[2]);
      if (b.input < 0) {
        const Tensor* t = g_.constant(conv->inputs[2]);
        if (!t || t->dtype() != g_.type(v).dtype) return false;
        b.constant = *t;
      }
    }
    u = conv->inputs[0];
    return true;
  }
  bool gate(ir::ValueId v, ir::ValueId x) {
    ir::ValueId inner, mean;
    if (!layer(v, p_.w2, p_.b2, p_.act2, inner) || !layer(inner, p_.w1, p_.b1, p_.act1, mean)) return false;
    const ir::Node* n = made_by(mean, "reduce_mean");
    if (!n || n->inputs[0] != x || !n->get_bool("keep_dims")) return false;
    ir::Ints axes = n->get_ints("axes");
    for (int64_t& a : axes)
      if (a < 0) a += g_.type(x).rank();
    std::sort(axes.begin(), axes.end());
    ir::Ints all;
    for (int64_t a = 2; a < g_.type(x).rank(); ++a) all.push_back(a);
    if (axes != all) return false;
    p_.x = input_of(x);
    return true;
  }
  const ir::Graph& g_;
  Parsed p_;
};

std::string refuse(const ir::Graph& graph, ir::NodeId id, const device::Target& target) {
  if (graph[id].get_text("kind") != "squeeze_excite") return "is another kind of group";
  if (target.sm < 90) return "needs thread block clusters (sm_90)";
  const Parsed p = Parser(graph[id].get_graph("body")).run();
  if (!p.reason.empty()) return p.reason;
  const ir::Type &x = input_type(graph, id, static_cast<size_t>(p.x)), &y = output_type(graph, id);
  if (!elem_of(x.dtype)) return cat("needs f32, f16 or bf16, got ", name(x.dtype));
  if (!is_channels_last(x.layout) || !is_channels_last(y.layout)) return "needs channels-last data";
  for (int i : {p.w1, p.b1.input, p.w2, p.b2.input, p.x})
    if (i >= 0 && input_type(graph, id, static_cast<size_t>(i)).dtype != y.dtype)
      return "mixes element types";
  const Shape& w1 = input_type(graph, id, static_cast<size_t>(p.w1)).shape;
  if (!w1[0].is_const() || !w1[1].is_const() || w1[0].value() > kSqueezeExciteMaxHidden ||
      w1[1].value() > kSqueezeExciteMaxChannels || w1[1].value() % 8 != 0)
    return cat("needs a multiple of 8 up to ", kSqueezeExciteMaxChannels, " channels and up to ",
               kSqueezeExciteMaxHidden, " inner ones, got ", w1[1].str(), " and ", w1[0].str());
  return {};
}

// [rows, columns] to [columns, rows].
Tensor transposed(const Tensor& t, int64_t rows, int64_t columns) {
  Tensor out(t.dtype(), {columns, rows});
  const auto size = static_cast<size_t>(bits(t.dtype()) / 8);
  const auto* from = static_cast<const std::byte*>(t.data());
  auto* to = static_cast<std::byte*>(out.mutable_data());
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t c = 0; c < columns; ++c)
      std::memcpy(to + static_cast<size_t>(c * rows + r) * size,
                  from + static_cast<size_t>(r * columns + c) * size, size);
  return out;
}

std::unique_ptr<Kernel> prepare(const Instance& instance, const device::Target&) {
  if (instance.outputs[0].count() == 0) return nothing();
  const Parsed p = Parser(instance.node().get_graph("body")).run();
  PELTON_CHECK(p.reason.empty(), p.reason);
  const TensorSpec& x = instance.inputs[static_cast<size_t>(p.x)];
  SqueezeExcite g;
  g.type = elem(x.dtype);
  g.n = static_cast<int>(x.dims[0]);
  g.c = static_cast<int>(x.dims[1]);
  g.places = static_cast<int>(x.count() / (x.dims[0] * x.dims[1]));
  g.hidden = static_cast<int>(instance.inputs[static_cast<size_t>(p.w1)].dims[0]);
  g.act1 = p.act1;
  g.act2 = p.act2;
  // The kernel reads the second weights as [hidden, channels].
  const Tensor& w2 = instance.constants[static_cast<size_t>(p.w2)];
  g.fixed_weights = w2.defined() && instance.constants[static_cast<size_t>(p.w1)].defined();
  KernelNeeds needs;
  Packed turned;
  if (w2.defined()) {
    turned =
        shared_packed(w2, "transposed", [&] { return upload(transposed(w2, g.c, g.hidden), "weights"); });
    needs.packed.push_back(turned);
    needs.unread.push_back(static_cast<size_t>(p.w2));
  } else {
    needs.scratch_bytes = static_cast<int64_t>(g.c) * g.hidden * elem_bytes(g.type);
  }
  // What a bias of the body is, on the device.
  auto bias = [&](const Parsed::Bias& b) {
    if (!b.constant.defined()) return Packed();
    needs.packed.push_back(
        shared_packed(b.constant, "as it is", [&] { return upload(b.constant, "a bias"); }));
    return needs.packed.back();
  };
  const Packed b1 = bias(p.b1), b2 = bias(p.b2);
  return make_kernel(
      [g, p, turned, b1, b2](const RunArgs& args) {
        auto at = [&](int i) { return i < 0 ? nullptr : args.in[static_cast<size_t>(i)]; };
        SqueezeExcite s = g;
        s.x = at(p.x);
        s.w1 = at(p.w1);
        s.b1 = b1 ? b1->get() : at(p.b1.input);
        s.b2 = b2 ? b2->get() : at(p.b2.input);
        s.y = args.out[0];
        if (turned) {
          s.w2 = turned->get();
        } else {
          PELTON_CUDA(
              move_taps(at(p.w2), args.scratch, elem_bytes(g.type), 1, g.c, g.hidden, stream_of(args)));
          s.w2 = args.scratch;
        }
        PELTON_CUDA(squeeze_excite(s, stream_of(args)));
      },
      std::move(needs));
}

}  // namespace

void add_squeeze_excite(Registry& registry) {
  registry.add({.name = "cuda.squeeze_excite",
                .ops = {"fused"},
                .refuse = refuse,
                .prepare = prepare,
                .device = device::Kind::cuda});
}

}  // namespace pelton::backend::cuda
