// SPDX-License-Identifier: Apache-2.0
#include "backend/cuda/attention/views.h"

#include <algorithm>
#include <optional>

#include "base/cat.h"
#include "ir/op.h"

namespace pelton::backend::cuda {
namespace {

// [..., A*B] to [..., A, B].
bool splits_last(const Shape& from, const Shape& to) {
  if (to.size() != from.size() + 1) return false;
  return std::equal(from.begin(), from.end() - 1, to.begin());
}

// The dims of `from` that stay when dims of size 1 are left out to give `to`; none if that is not what
// happens.
std::optional<std::vector<size_t>> without_ones(const Shape& from, const Shape& to) {
  std::vector<size_t> kept;
  for (size_t d = 0; d < from.size(); ++d) {
    if (kept.size() < to.size() && from[d] == to[kept.size()])
      kept.push_back(d);
    else if (!(from[d] == Dim(1)))
      return {};
  }
  if (kept.size() != to.size()) return {};
  return kept;
}

}  // namespace

ViewChain view_chain(const ir::Graph& body, ir::ValueId v) {
  ViewChain chain;
  for (;;) {
    const auto at = std::find(body.inputs.begin(), body.inputs.end(), v);
    if (at != body.inputs.end()) {
      chain.input = static_cast<int>(at - body.inputs.begin());
      break;
    }
    const ir::NodeId id = body[v].producer;
    if (!id) {
      chain.reason = "is no input";
      return chain;
    }
    const ir::Node& n = body[id];
    if (!n.is("slice") && !n.is("reshape") && !n.is("transpose")) {
      chain.reason = cat("is made by ", n.op->name);
      return chain;
    }
    chain.nodes.push_back(id);
    v = n.inputs[0];
  }
  std::reverse(chain.nodes.begin(), chain.nodes.end());
  // What was sliced or transposed is not dense: only its last dim may still be split and dims of
  // size 1 left out.
  bool dense = true;
  for (ir::NodeId id : chain.nodes) {
    const ir::Node& n = body[id];
    const Shape &from = body.type(n.inputs[0]).shape, &to = body.type(n.outputs[0]).shape;
    if (n.is("reshape") && !dense && !splits_last(from, to) && !without_ones(from, to)) {
      chain.input = -1;
      chain.reason = "reshapes a part of a tensor";
      return chain;
    }
    dense &= n.is("reshape");
  }
  return chain;
}

StridedView strided_view(const ir::Graph& body, const ViewChain& chain, const Dims& input_dims,
                         const SymbolValues& symbols) {
  StridedView view{input_dims, row_major_strides(input_dims), 0};
  bool dense = true;
  for (ir::NodeId id : chain.nodes) {
    const ir::Node& n = body[id];
    const Dims to = pelton::eval(body.type(n.outputs[0]).shape, symbols);
    if (n.is("transpose")) {
      const ir::Ints& perm = n.get_ints("perm");
      Dims strides;
      for (int64_t p : perm) strides.push_back(view.strides[static_cast<size_t>(p)]);
      view.strides = strides;
    } else if (n.is("slice")) {
      const ir::Ints& axes = n.get_ints("axes");
      const Dims starts = pelton::eval(n.get_dims("starts"), symbols);
      const ir::Ints& steps = n.get_ints("steps");
      for (size_t i = 0; i < axes.size(); ++i) {
        const auto axis =
            static_cast<size_t>(axes[i] < 0 ? axes[i] + static_cast<int64_t>(to.size()) : axes[i]);
        view.offset += starts[i] * view.strides[axis];
        if (!steps.empty()) view.strides[axis] *= steps[i];
      }
    } else if (dense) {
      view.strides = row_major_strides(to);
    } else if (auto kept = without_ones(body.type(n.inputs[0]).shape, body.type(n.outputs[0]).shape)) {
      Dims strides;
      for (size_t d : *kept) strides.push_back(view.strides[d]);
      view.strides = strides;
    } else {
      view.strides.back() *= to.back();
      view.strides.push_back(view.strides.back() / std::max<int64_t>(1, to.back()));
    }
    dense &= n.is("reshape");
    view.dims = to;
  }
  return view;
}

}  // namespace pelton::backend::cuda
