// SPDX-License-Identifier: Apache-2.0
#include "onnx/import/importer.h"

#include <algorithm>
#include <set>
#include <stdexcept>

#include "ir/infer.h"
#include "onnx/import/custom.h"
#include "onnx/import/declared.h"
#include "onnx/import/table.h"

namespace pelton::onnx {
namespace {

constexpr int kMaxNesting = 64;
// Functions that call functions and loops inside loops multiply; a model this large would not be of use
// anyway.
constexpr size_t kMaxNodes = 1'000'000;

std::vector<std::string_view> output_names(const GraphView& graph) {
  std::vector<std::string_view> out;
  for (const ValueInfoView& v : graph.outputs) out.push_back(v.name);
  return out;
}

struct Nesting {
  explicit Nesting(int& depth) : depth_(depth) {
    if (++depth_ > kMaxNesting) {
      --depth_;
      fail(ErrorCode::limit, cat("functions and sub-graphs nested more than ", kMaxNesting, " deep"));
    }
  }
  ~Nesting() { --depth_; }
  int& depth_;
};

}  // namespace

Importer::Importer(const ModelView& model, TensorSource source, const ImportOptions& options)
    : model_(model),
      source_(std::move(source)),
      options_(options),
      fixed_(fixed_sizes(model.graph, options)),
      opsets_(&model.opsets) {}

int64_t Importer::opset_of(std::string_view domain) const {
  auto it = opsets_->find(domain);
  if (it != opsets_->end()) return it->second;
  if (!domain.empty() || model_.ir_version < 3) return 1;  // files older than operator sets mean version 1
  fail(ErrorCode::bad_format, "the model names no operator set for the default domain", "opset_import");
}

Dim Importer::dim_of(const DimView& view, std::string_view name, size_t axis) {
  if (view.value && *view.value >= 0) return *view.value;
  std::string symbol = symbol_of(view, name, axis);
  if (auto it = fixed_.find(symbol); it != fixed_.end()) return it->second;
  return Dim::symbol(symbol);
}

ir::Type Importer::type_of(const TypeView& view, std::string_view name) {
  switch (view.kind) {
    case TypeView::Kind::tensor:
    case TypeView::Kind::sparse_tensor: {
      auto dtype = dtype_from_onnx(view.elem_type);
      if (auto it = options_.input_types.find(name); !dtype && it != options_.input_types.end())
        dtype = it->second;
      if (!dtype)
        fail(ErrorCode::bad_type, cat("'", name, "' has element type ", onnx_type_name(view.elem_type),
                                      ", which is not supported"));
      if (!view.has_shape) return ir::Type::unranked(*dtype);
      Shape shape;
      for (size_t i = 0; i < view.dims.size(); ++i) shape.push_back(dim_of(view.dims[i], name, i));
      if (onnx_is_complex(view.elem_type)) shape.emplace_back(2);
      return ir::Type::tensor(*dtype, std::move(shape));
    }
    case TypeView::Kind::sequence:
      if (view.element) return ir::Type::sequence(type_of(*view.element, name));
      break;
    case TypeView::Kind::optional:
      if (view.element) return ir::Type::optional(type_of(*view.element, name));
      break;
    case TypeView::Kind::map:
      fail(ErrorCode::bad_type, cat("'", name, "' is a map, which is not supported as an input"));
    case TypeView::Kind::opaque:
      fail(ErrorCode::bad_type, cat("'", name, "' has an opaque type"));
    case TypeView::Kind::none:
      break;
  }
  fail(ErrorCode::bad_format, cat("'", name, "' has no type"));
}

void Importer::add_inputs(Scope& scope) {
  std::set<std::string_view> known;
  for (const ValueInfoView& v : model_.graph.inputs) {
    known.insert(v.name);
    if (scope.has_initializer(v.name)) continue;  // a default that is taken as the value
    ir::Type type = type_of(v.type, v.name);
    if (auto it = options_.input_shapes.find(v.name); it != options_.input_shapes.end()) {
      if (!type.is_tensor())
        fail(ErrorCode::bad_shape, cat("a shape is given for '", v.name, "', which is ", type.str()));
      if (type.ranked && type.rank() != static_cast<int64_t>(it->second.size()))
        fail(ErrorCode::bad_shape,
             cat("input '", v.name, "' is ", type.str(), ", the shape given has rank ", it->second.size()));
      type = ir::Type::tensor(type.dtype, it->second);
    }
    if (auto it = options_.fixed_sizes.find(v.name);
        it != options_.fixed_sizes.end() && type.is_tensor() && !type.ranked) {
      Shape shape;
      for (const std::optional<int64_t>& size : it->second)
        shape.push_back(size ? Dim(*size) : Dim::symbol(symbol_of({}, v.name, shape.size())));
      type = ir::Type::tensor(type.dtype, std::move(shape));
    }
    if (type.is_tensor() && !type.ranked)
      fail(ErrorCode::bad_shape, cat("input '", v.name, "' has no shape in the model"), {},
           cat("give it with --shape ", v.name, "=..."));
    ValueId input = scope.build().graph.add_input(type);
    scope.define(v.name, input);
    if (auto it = options_.input_values.find(v.name); it != options_.input_values.end())
      known_.values[input] = it->second;
  }
  for (const auto& [name, shape] : options_.input_shapes)
    if (!known.count(name)) fail(ErrorCode::bad_name, cat("the model has no input '", name, "'"));
}

void Importer::finish_outputs(Scope& scope) {
  std::set<std::string_view> seen;
  for (const ValueInfoView& v : model_.graph.outputs) {
    if (!seen.insert(v.name).second) fail(ErrorCode::bad_format, cat("two outputs are named '", v.name, "'"));
    const ValueId found = scope.find(v.name);
    ir::Graph& graph = scope.build().graph;
    require_declared_type(v.type, graph.type(found), v.name);
    // Sizes that the caller gave are not those that the model speaks of.
    if (options_.input_shapes.empty() && options_.fixed_sizes.empty())
      warn_of_declared_sizes(v.type, graph.type(found), v.name, graph.symbols->ranges);
    graph.add_output(found, std::string(v.name));
  }
}

ir::Graph Importer::run() {
  if (auto it = opsets_->find(""); it != opsets_->end() && it->second > kNewestOpset)
    fail(ErrorCode::unsupported_version,
         cat("the model uses operator set ", it->second, ", the newest known is ", kNewestOpset));
  GraphBuild build(model_.graph.name.empty() ? "main" : symbol_name(model_.graph.name));
  symbols_ = build.graph.symbols;
  main_ = &build.graph;
  Scope scope(build, nullptr, source_);
  scope.add_initializers(model_.graph);
  add_inputs(scope);
  import_nodes(model_.graph.nodes, output_names(model_.graph), scope);
  finish_outputs(scope);
  return std::move(build.graph);
}

std::vector<std::string> Importer::fixed_inputs(const ir::Graph& graph) const {
  std::vector<std::string> out;
  for (ValueId v : known_.used) out.push_back(graph[v].name);
  return out;
}

void Importer::import_nodes(const std::vector<NodeView>& nodes, const std::vector<std::string_view>& results,
                            Scope& scope) {
  auto is_known = [&](std::string_view name) { return scope.visible(name); };
  // Functions are not looked into: one that no result needs is left out with the effects inside it.
  auto is_kept = [&](const NodeView& n) {
    if (import_table().find(n.domain, n.op_type) || find_function(n)) return false;
    const ir::CustomOp* custom = plugin_op(n, opset_of(n.domain));
    return custom && custom->effects;
  };
  for (const NodeView* n : order_nodes(nodes, results, is_known, is_kept)) import_node(*n, scope);
}

void Importer::import_node(const NodeView& node, Scope& scope) {
  Nesting nesting(depth_);
  if (++imported_ > kMaxNodes)
    fail(ErrorCode::limit, cat("the model unfolds to more than ", kMaxNodes, " nodes"));
  const FunctionView* function = find_function(node);
  NodeContext context(*this, scope, node, function ? 0 : opset_of(node.domain));
  with_place(context.place(), [&] {
    // Calls of functions have bound the references of their bodies, so one that is left names nothing.
    std::set<std::string_view> attributes;
    for (const AttributeView& a : node.attributes)
      if (!attributes.insert(a.name).second)
        context.refuse(ErrorCode::bad_format, cat("attribute '", a.name, "' is there twice"));
      else if (!a.ref_attr_name.empty())
        context.refuse(ErrorCode::bad_format, cat("attribute '", a.name, "' refers to '", a.ref_attr_name,
                                                  "', which no function that is called here has"));
    std::string outer_name = scope.builder().node_name();
    scope.builder().set_name(node.name.empty()
                                 ? std::string(node.outputs.empty() ? node.op_type : node.outputs[0])
                                 : std::string(node.name));
    if (function) {
      import_function(*function, context);
    } else {
      ImportFn fn = import_table().find(node.domain, node.op_type);
      const ir::CustomOp* custom = fn ? nullptr : plugin_op(node, context.opset);
      if (!fn && !custom) {
        std::string_view near = import_table().nearest(node.domain, node.op_type);
        context.refuse(ErrorCode::unsupported_op,
                       cat("there is no op '", node.op_type, "' in domain '",
                           node.domain.empty() ? "ai.onnx" : node.domain, "'"),
                       near.empty() ? "a plug-in can add it"
                                    : cat("the nearest is ", near, "; a plug-in can add others"));
      }
      try {
        if (fn)
          fn(context);
        else
          import_custom(context, *custom, token_);
      } catch (const std::out_of_range&) {  // an entry of a shape or list that is too short
        context.refuse(ErrorCode::bad_shape, "an input has too few dimensions, or a list too few entries");
      }
    }
    for (std::string_view name : node.outputs)
      if (!name.empty() && !scope.find(name))
        context.refuse(ErrorCode::unsupported_op, cat("output '", name, "' of this op is not supported"));
    scope.builder().set_name(outer_name);
  });
}

SubGraph Importer::import_subgraph(const GraphView& view, const std::vector<ir::Type>& input_types,
                                   Scope& scope) {
  Nesting nesting(depth_);
  SubGraph sub;
  sub.build = std::make_unique<GraphBuild>(view.name.empty() ? "body" : symbol_name(view.name));
  sub.build->graph.symbols = symbols_;
  sub.build->builder.set_name(scope.builder().node_name());
  Scope inner(*sub.build, &scope, source_);
  if (view.inputs.size() != input_types.size())
    fail(ErrorCode::bad_format, cat("sub-graph '", view.name, "' takes ", view.inputs.size(),
                                    " inputs where ", input_types.size(), " are given"));
  for (size_t i = 0; i < input_types.size(); ++i)
    inner.define(view.inputs[i].name, sub.build->graph.add_input(input_types[i]));
  inner.add_initializers(view);
  import_nodes(view.nodes, output_names(view), inner);
  for (const ValueInfoView& v : view.outputs) {
    sub.build->graph.outputs.push_back(inner.find(v.name));
    require_declared_type(v.type, sub.build->graph.type(sub.build->graph.outputs.back()), v.name);
  }
  sub.captures = inner.captures();
  return sub;
}

std::vector<ValueId> Importer::import_inline(const GraphView& view, const std::vector<ValueId>& inputs,
                                             Scope& scope) {
  Nesting nesting(depth_);
  Scope inner(scope.build(), &scope, source_, cat(scope.builder().node_name(), "/"));
  for (size_t i = 0; i < inputs.size() && i < view.inputs.size(); ++i)
    inner.define(view.inputs[i].name, inputs[i]);
  inner.add_initializers(view);
  import_nodes(view.nodes, output_names(view), inner);
  std::vector<ValueId> out;
  for (const ValueInfoView& v : view.outputs) {
    out.push_back(inner.find(v.name));
    require_declared_type(v.type, scope.build().graph.type(out.back()), v.name);
  }
  return out;
}

}  // namespace pelton::onnx
