// SPDX-License-Identifier: Apache-2.0
#include "passes/layout.h"

#include <map>

#include "ir/keeps_bytes.h"
#include "passes/rewrite.h"

namespace pelton::passes {

using namespace ir;

namespace {

class Assign {
 public:
  Assign(Graph& g, const Context& context, Layout wanted, const std::vector<Layout>& by_anchor)
      : g_(g),
        context_(context),
        by_anchor_(by_anchor),
        wanted_(wanted),
        plain_f32_(has_gradients(g) && !has_depthwise(g)),
        has_anchors_(anchors() > 0) {}

  size_t anchors() const {
    size_t count = 0;
    for (NodeId id : g_.order()) count += anchor(id);
    return count;
  }

  bool run() {
    size_t anchors_seen = 0;
    for (NodeId id : std::vector<NodeId>(g_.order())) {
      const Node n = g_[id];  // a copy: inserting conversions moves the nodes
      ValueId met;
      for (ValueId v : n.inputs)
        if (!met && v && converted(v)) met = v;
      const bool is_anchor = anchor(id);
      if (met ? view(id) : channels_to_second(id)) continue;
      if (!is_anchor && !met) continue;
      if (!by_anchor_.empty()) {
        wanted_ = is_anchor ? by_anchor_.at(anchors_seen++) : g_.type(met).layout;
        if (wanted_.is_plain()) {
          for (size_t i = 0; i < n.inputs.size(); ++i) to_layout(id, i, Layout{});
          continue;
        }
      }
      // The gradient of weights has their rank, not their axes.
      bool weights = n.is("conv_backward_weights");
      if ((!weights && try_node(id, true)) || try_node(id, false)) continue;
      for (size_t i = 0; i < n.inputs.size(); ++i) to_layout(id, i, Layout{});
    }
    for (ValueId& v : g_.outputs)
      if (converted(v)) v = plain_copy(v, {});
    for (Slot& s : g_.slots)
      if (s.next && converted(s.next)) s.next = plain_copy(s.next, {});
    if (changed_) {
      g_.sort();
      remove_dead(g_);
    }
    return changed_;
  }

 private:
  bool anchor(NodeId id) const {
    const Node& n = g_[id];
    return (n.is("conv") || n.is("conv_transpose") || n.is("conv_backward_data")) &&
           g_.type(n.outputs[0]).rank() >= 4 && likes_channels_last(id);
  }
  bool converted(ValueId v) const { return g_.type(v).is_tensor() && !g_.type(v).layout.is_plain(); }

  bool on_gpu() const { return context_.target.kind == device::Kind::cuda; }
  // On a GPU that is what tensor cores, the kernels of depthwise layers and the products in f32 read. The
  // gradients of f32 convolutions are cuDNN's, which is as good at plain data.
  bool likes_channels_last(NodeId id) const {
    return !on_gpu() || g_.type(g_[id].outputs[0]).dtype != DType::f32 || context_.target.tf32 || !plain_f32_;
  }
  static bool has_gradients(const Graph& g) {
    for (NodeId id : g.order())
      if (g[id].is("conv_backward_data") || g[id].is("conv_backward_weights")) return true;
    return false;
  }
  // A network that is built of depthwise layers.
  static bool has_depthwise(const Graph& g) {
    for (NodeId id : g.order())
      if (g[id].is("conv") && g[id].get_int("groups") > 1 &&
          g.type(g[id].inputs[0]).shape[1] == Dim(g[id].get_int("groups")))
        return true;
    return false;
  }
  // The first layer of an image network: its kernel reads plain images and yields channels last.
  bool reads_plain(NodeId id, size_t i) const {
    const Type& t = g_.type(g_[id].inputs[i]);
    return on_gpu() && g_[id].is("conv") && i == 0 && t.rank() == 4 && t.layout.is_plain() &&
           t.shape[1].is_const() && t.shape[1].value() <= 4;
  }

  // --- transpositions between [N, C, S...] and [N, S..., C], and reshapes that join or split S: nothing
  // moves if the image is channels last. On a GPU generated kernels read through both.

  // Such a node of a converted value.
  bool view(NodeId id) {
    if (on_gpu() || (!g_[id].is("transpose") && !joins_pixels(id))) return false;
    if (g_[id].is("reshape")) g_.edit(result(g_, id)).type.layout = g_.type(input(g_, id, 0)).layout;
    if (!keeps_bytes(g_, id)) {
      g_.edit(result(g_, id)).type.layout = Layout{};
      return false;
    }
    return counted();
  }
  // A reshape that leaves batch and channels alone, on the way to a transposition or a convolution.
  bool joins_pixels(NodeId id) const {
    const Node& n = g_[id];
    if (!n.is("reshape") || g_.type(n.inputs[0]).layout.kind != Layout::Kind::channels_last) return false;
    const Shape &x = g_.type(n.inputs[0]).shape, &y = g_.type(n.outputs[0]).shape;
    if (x.size() < 3 || y.size() < 3 || x[0] != y[0] || x[1] != y[1]) return false;
    for (Use u : g_[n.outputs[0]].uses)
      if (g_[u.user].is("transpose") || g_[u.user].is("conv")) return true;
    return false;
  }
  // A plain [N, S..., C] that becomes an image [N, C, S...]: the pixels lie as a channels-last image has
  // them.
  bool channels_to_second(NodeId id) {
    if (on_gpu() || !by_anchor_.empty() || wanted_.kind != Layout::Kind::channels_last ||
        !g_[id].is("transpose") || g_.type(result(g_, id)).rank() < 4 || !has_anchors_)
      return false;
    return yields_channels_last(id) && counted();
  }
  bool yields_channels_last(NodeId transpose) {
    Layout& layout = g_.edit(result(g_, transpose)).type.layout;
    layout.kind = Layout::Kind::channels_last;
    if (keeps_bytes(g_, transpose)) return true;
    layout = Layout{};
    return false;
  }
  bool counted() {
    context_.count("layout/view");
    return changed_ = true;
  }
  // The plain value `v` in channels-last layout where that moves nothing, else none.
  ValueId free_copy(ValueId v) {
    const NodeId made = g_[v].producer;
    if (on_gpu() || !made || g_.type(v).rank() < 3) return {};
    Builder b(g_, made);
    b.set_name(g_[made].name);
    if (g_[made].is("transpose")) {
      const ValueId same = b.op("transpose", {input(g_, made, 0)}, g_[made].attrs);
      if (yields_channels_last(g_[same].producer)) return same;
    } else if (g_[made].is("reshape")) {
      const Type& x = g_.type(input(g_, made, 0));
      const Shape y = g_.type(v).shape;  // a copy: building moves the values
      if (x.rank() < 3 || !x.layout.is_plain() || x.shape[0] != y[0] || x.shape[1] != y[1]) return {};
      if (const ValueId inner = free_copy(input(g_, made, 0))) {
        const ValueId same = b.reshape(inner, y);
        g_.edit(same).type.layout = g_.type(inner).layout;
        return same;
      }
    }
    return {};
  }

  // Sets the layouts of the node's full-rank inputs (and results, if asked) and keeps them if a kernel
  // agrees.
  bool try_node(NodeId id, bool results) {
    const Node n = g_[id];  // a copy: inserting conversions moves the nodes
    if (!context_.oracle || n.op->family == Family::control || n.op->family == Family::shape) {
      if (!n.is("concat") && !n.is("slice") && !n.is("pad") && !n.is("after")) return false;
    }
    int64_t rank = g_.type(n.outputs[0]).rank();
    std::vector<ValueId> before = n.inputs;
    std::vector<size_t> touched;
    bool stays_plain = false;
    for (size_t i = 0; i < n.inputs.size(); ++i) {
      ValueId v = n.inputs[i];
      if (!v || !full_rank(id, i)) continue;
      if (!converted(v)) {
        // Broadcast operands of pointwise ops stay as they are.
        if (!(g_.type(v).shape.size() >= 3) || pads(v)) continue;
      }
      if (results && reads_plain(id, i)) {
        stays_plain = true;
        continue;
      }
      to_layout(id, i, wanted_);
      touched.push_back(i);
    }
    std::vector<Layout> old;
    for (ValueId v : n.outputs) {
      old.push_back(g_.type(v).layout);
      if (results && g_.type(v).is_tensor() && g_.type(v).rank() == rank && rank >= 3)
        g_.edit(v).type.layout = wanted_;
    }
    const bool changes = !touched.empty() || stays_plain || (results && anchor(id) && !on_gpu());
    if (changes && context_.oracle->refuse(g_, id).empty()) {
      context_.count("layout/assign");
      changed_ = true;
      return true;
    }
    for (size_t i = 0; i < n.outputs.size(); ++i) g_.edit(n.outputs[i]).type.layout = old[i];
    for (size_t i = 0; i < before.size(); ++i)
      if (g_[id].inputs[i] != before[i]) g_.set_input(id, i, before[i]);
    return false;
  }

  // Few channels (an image's three) would mostly be padding of a block.
  bool pads(ValueId v) const {
    const Dim& channels = g_.type(v).shape[1];
    return wanted_.kind == Layout::Kind::blocked &&
           (!channels.is_const() || channels.value() < wanted_.block);
  }

  // Whether input i is an activation with a channel axis: the first input of convolution and pooling (and the
  // data that their backward forms read), any input of the node's own rank elsewhere; constants are weights
  // and stay.
  bool full_rank(NodeId id, size_t i) const {
    const Node& n = g_[id];
    ValueId v = n.inputs[i];
    if (!g_.type(v).is_tensor() || g_.type(v).rank() < 3 || g_.constant(v)) return false;
    if (n.op->family == Family::convolution || n.op->family == Family::pooling ||
        n.op->family == Family::reduction || n.is("after"))
      return i == 0 || n.is("conv_backward_weights") || n.is("max_pool_backward");
    return g_.type(v).rank() == g_.type(n.outputs[0]).rank() && same_shape(g_, v, n.outputs[0])
               ? true
               : n.is("concat") || n.is("pad") || i == 0;
  }

  void to_layout(NodeId id, size_t i, Layout wanted) {
    ValueId v = g_[id].inputs[i];
    if (!v || !g_.type(v).is_tensor() || g_.type(v).layout == wanted) return;
    if (wanted.is_plain()) return g_.set_input(id, i, plain_copy(v, id));
    if (NodeId back = producer(g_, v, "layout"); back && g_.type(input(g_, back, 0)).layout == wanted)
      return g_.set_input(id, i, input(g_, back, 0));
    if (wanted.kind == Layout::Kind::channels_last)
      if (const ValueId same = free_copy(v)) return g_.set_input(id, i, same);
    g_.set_input(id, i, copy(v, wanted, wanted.str().c_str(), id));
  }
  ValueId plain_copy(ValueId v, NodeId before) {
    changed_ = true;  // other copies may be of a trial only
    return copy(v, Layout{}, "plain", before);
  }

  ValueId copy(ValueId v, Layout wanted, const char* name, NodeId before) {
    auto key = std::pair(v.index, std::string(name));
    if (auto it = copies_.find(key); it != copies_.end() && g_[g_[it->second].producer].alive)
      return it->second;
    Builder b(g_, before);
    b.set_name(g_[v].producer ? g_[g_[v].producer].name : g_[v].name);
    ValueId c = b.op("layout", {v}, {{"to", std::string(name)}});
    g_.edit(c).type.layout = wanted;
    copies_[key] = c;
    return c;
  }

  Graph& g_;
  const Context& context_;
  const std::vector<Layout>& by_anchor_;
  Layout wanted_;  // of the present node
  const bool plain_f32_, has_anchors_;
  std::map<std::pair<uint32_t, std::string>, ValueId> copies_;
  bool changed_ = false;
};

}  // namespace

size_t count_layout_anchors(const Graph& graph, const Context& context) {
  Graph copy = graph;
  return Assign(copy, context, {}, {}).anchors();
}

bool layout(Graph& graph, const Context& context, Layout wanted, const std::vector<Layout>& by_anchor) {
  if (!context.oracle || !find_op("layout") || (by_anchor.empty() && wanted.is_plain())) return false;
  for (NodeId id : graph.order())  // assigned before
    for (ValueId v : graph[id].outputs)
      if (graph[id].is("layout") || !graph.type(v).layout.is_plain()) return false;
  bool changed = Assign(graph, context, wanted, by_anchor).run();
  // Trials leave conversions that nothing uses.
  remove_dead(graph);
  return changed;
}

}  // namespace pelton::passes
