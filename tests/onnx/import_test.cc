// SPDX-License-Identifier: Apache-2.0
#include "onnx/import/import.h"

#include <doctest/doctest.h>

#include <set>

#include "base/log.h"
#include "ir/text.h"
#include "model_text.h"
#include "support/expect_error.h"

using namespace pelton;
using test::expect_error;
using test::ModelText;

namespace {

Dim sym(const char* name) {
  return Dim::symbol(name);
}
size_t count_ops(const ir::Graph& g, std::string_view op) {
  size_t n = 0;
  for (ir::NodeId id : g.order()) n += g[id].is(op);
  return n;
}
// A sub-graph of one node over `x`, declared as f32[2].
std::string branch(std::string_view op, const std::vector<std::string>& in,
                   std::vector<onnx::OnnxAttr> attrs = {}) {
  onnx::WriterState state;
  onnx::GraphWriter w(state, std::string(op));
  wire::Writer node;
  node.bytes(pb::GraphProto::node, ModelText::node_bytes(op, in, {cat(op, "_out")}, attrs));
  w.add_output(cat(op, "_out"), ir::Type::tensor(DType::f32, {2}));
  return node.data() + w.finish();
}
// What is logged while `f` runs.
template <class F>
std::string logged(F&& f) {
  std::string lines;
  set_log_sink([](void* user, LogLevel, const char* line) { *static_cast<std::string*>(user) += line; },
               &lines);
  f();
  set_log_sink(nullptr, nullptr);
  return lines;
}

}  // namespace

TEST_CASE("inputs, outputs and values keep their names; nodes come in any order; dead ones are left out") {
  ModelText m;
  m.input("x", {sym("N"), 3}).output("y");
  m.node("Relu", {"t"}, {"y"}).node("NoSuchOp", {"x"}, {"dead"}).node("Neg", {"x"}, {"t"});
  ir::Graph g = m.import();
  CHECK(g.node_count() == 2);
  CHECK(g[g.inputs[0]].name == "x");
  CHECK(g.output_name(0) == "y");
  CHECK(g.type(g.outputs[0]).str() == "f32[N,3]");
}

TEST_CASE("shape arithmetic stays symbolic") {
  ModelText m;
  m.input("x", {sym("N"), 4, 6}).output("y");
  m.initializer("zero", Tensor::from<int64_t>({1}, {0}))
      .initializer("rest", Tensor::from<int64_t>({1}, {-1}));
  m.node("Shape", {"x"}, {"s"}).node("Gather", {"s", "zero"}, {"n"}, {onnx::attr("axis", int64_t{0})});
  m.node("Concat", {"n", "rest"}, {"to"}, {onnx::attr("axis", int64_t{0})})
      .node("Reshape", {"x", "to"}, {"y"});
  ir::Graph g = m.import();
  CHECK(g.type(g.outputs[0]).str() == "f32[N,24]");
  CHECK(count_ops(g, "dynamic_reshape") == 0);
}

TEST_CASE(
    "softmax before operator set 13 counts its axis from either end; only its default lies behind a vector's "
    "end") {
  auto rows = [](std::vector<onnx::OnnxAttr> attrs) {  // what softmax sees of a vector of 5
    ModelText m;
    m.opset = 11;
    m.input("x", {5}).output("y").node("Softmax", {"x"}, {"y"}, std::move(attrs));
    ir::Graph g = m.import();
    for (ir::NodeId id : g.order())
      if (g[id].is("softmax")) return g.type(g[id].inputs[0]).str();
    return std::string("no softmax");
  };
  CHECK(rows({onnx::attr("axis", int64_t{-1})}) == "f32[5]");
  CHECK(rows({onnx::attr("axis", int64_t{0})}) == "f32[5]");
  CHECK(rows({}) == "f32[5,1]");
}

TEST_CASE("names of dimensions become symbols") {
  ModelText m;
  m.input("x", {sym("p2o.Dim.0")}).output("y").node("Relu", {"x"}, {"y"});
  ir::Graph g = m.import();
  CHECK(g.type(g.outputs[0]).str() == "f32[p2o.Dim.0]");
}

TEST_CASE("a number that becomes part of a node has no name for new values") {
  ModelText m;
  m.initializer("scales", Tensor::from<float>({4}, {1, 1, 2, 2}))
      .initializer("kept", Tensor::from<float>({4}, {1, 2, 3, 4}))
      .node("Resize", {"x", "", "scales"}, {"y"})
      .node("Mul", {"z", "scales"}, {"a"})
      .node("Add", {"a", "kept"}, {"b"})
      .input("x", {1, 1, 2, 2})
      .input("z", {4})
      .output("y")
      .output("b");
  const ir::Graph g = m.import();
  std::set<std::string> names;
  for (ir::NodeId id : g.order())
    if (g[id].is("constant")) names.insert(g[g[id].outputs[0]].name);
  CHECK(names.count("kept") == 1);
  CHECK(names.count("scales") == 0);
}

TEST_CASE("a condition that is known picks its branch, one that is not captures what both use") {
  for (bool known : {true, false}) {
    ModelText m;
    m.input("x", {2}).output("y");
    if (known)
      m.initializer("c", Tensor::scalar(true));
    else
      m.input("c", {}, DType::boolean);
    m.node("If", {"c"}, {"y"},
           {onnx::graph_attr("then_branch", branch("Relu", {"x"})),
            onnx::graph_attr("else_branch", branch("Neg", {"x"}))});
    ir::Graph g = m.import();
    CHECK(count_ops(g, "if") == (known ? 0 : 1));
    CHECK(count_ops(g, "relu") == (known ? 1 : 0));
    if (!known) CHECK(g[g.order().back()].inputs.size() == 2);
  }
}

TEST_CASE("a branch that cannot run at the sizes given is kept as one that refuses the run") {
  auto model = [](Shape x, Shape w, Shape v) {
    ModelText m;
    m.input("c", {}, DType::boolean).input("x", std::move(x)).output("y");
    m.initializer("w", Tensor::zeros(DType::f32, as_dims(w).value()));
    m.initializer("v", Tensor::zeros(DType::f32, as_dims(v).value()));
    return m.node("If", {"c"}, {"y"},
                  {onnx::graph_attr("then_branch", branch("Add", {"x", "w"})),
                   onnx::graph_attr("else_branch", branch("Sub", {"x", "v"}))});
  };
  for (bool then_fits : {true, false}) {
    ir::Graph g;
    const std::string said =
        logged([&] { g = model({2}, {then_fits ? 2 : 3}, {then_fits ? 3 : 2}).import(); });
    CHECK(said.find(then_fits ? "else branch of If 'the_If' cannot run at these sizes"
                              : "then branch of If 'the_If' cannot run at these sizes") != said.npos);
    CHECK(said.find("cannot broadcast") != said.npos);
    REQUIRE(count_ops(g, "if") == 1);
    const ir::Node& n = g[g.order().back()];
    const ir::Graph &fits = n.get_graph(then_fits ? "then" : "else"),
                    &lost = n.get_graph(then_fits ? "else" : "then");
    CHECK(fits.checks.empty());
    REQUIRE(lost.checks.size() == 1);
    CHECK_FALSE(lost.checks[0].holds({}));
    CHECK(lost.inputs.size() == fits.inputs.size());
    CHECK(g.type(g.outputs[0]).str() == "f32[2]");
  }
  expect_error(ErrorCode::bad_shape, {"If 'the_If'", "cannot broadcast"},
               [&] { model({2}, {3}, {3}).import(); });  // neither can run
}

TEST_CASE("a result declared as a sequence of maps is the matrix that ZipMap gets") {
  // What converters of sklearn, LightGBM and XGBoost write by default.
  auto model = [](DType value) {
    wire::Writer map, map_type, sequence, type, info, w;
    map.integer(pb::TypeProto_Map::key_type, 7);
    map.bytes(pb::TypeProto_Map::value_type, onnx::type_proto(ir::Type::tensor(value, {})));
    map_type.bytes(pb::TypeProto::map_type, map.data());
    sequence.bytes(pb::TypeProto_Sequence::elem_type, map_type.data());
    type.bytes(pb::TypeProto::sequence_type, sequence.data());
    info.bytes(pb::ValueInfoProto::name, "y");
    info.bytes(pb::ValueInfoProto::type, type.data());
    w.bytes(pb::GraphProto::output, info.data());
    ModelText m;
    m.input("x", {sym("N"), 3}).graph += w.data();
    return m.node("ZipMap", {"x"}, {"y"}, {onnx::attr("classlabels_int64s", ir::Ints{0, 1, 2})},
                  "ai.onnx.ml");
  };
  ir::Graph g = model(DType::f32).import();
  CHECK(g.type(g.outputs[0]).str() == "f32[N,3]");
  expect_error(ErrorCode::bad_type, {"declares 'y' as a sequence of a map to float64", "yield f32[N,3]"},
               [&] { model(DType::f64).import(); });
}

TEST_CASE("declared results are held against what the nodes yield: kinds and types refuse, sizes warn") {
  auto model = [](const ir::Type& declared) {
    ModelText m;
    m.input("x", {sym("N"), 3}).value(pb::GraphProto::output, "y", declared);
    return m.node("Relu", {"x"}, {"y"});
  };
  using ir::Type;
  expect_error(ErrorCode::bad_type, {"declares 'y' as int32", "yield f32[N,3]", "output 'y'"}, [&] {
    model(Type::tensor(DType::i32, {sym("N"), 3})).import();
  });
  expect_error(ErrorCode::bad_type, {"declares 'y' as a sequence of float32"},
               [&] { model(Type::sequence(Type::tensor(DType::f32, {3}))).import(); });
  for (const Shape& wrong : {Shape{sym("N"), 4}, Shape{sym("N"), 3, 1}}) {
    const std::string said = logged([&] {
      ir::Graph g = model(Type::tensor(DType::f32, wrong)).import();
      CHECK(g.type(g.outputs[0]).str() == "f32[N,3]");
    });
    CHECK(said.find("declares output 'y' with sizes") != said.npos);
    CHECK(said.find("f32[N,3], which holds") != said.npos);
  }
  // What may be so, and what a caller changed, is not worth a word.
  CHECK(logged([&] { model(Type::tensor(DType::f32, {sym("M"), 3})).import(); }).empty());
  CHECK(logged([&] { model(Type::tensor(DType::f32, {7, 3})).import(); }).empty());
  onnx::ImportOptions options;
  options.input_shapes["x"] = {5, 3};
  CHECK(logged([&] { model(Type::tensor(DType::f32, {7, 3})).import(options); }).empty());
  // Branches are held to it too.
  ModelText m;
  m.input("c", {}, DType::boolean).input("x", {2}).output("y");
  m.node("If", {"c"}, {"y"},
         {onnx::graph_attr("then_branch", branch("Relu", {"x"})),
          onnx::graph_attr("else_branch", branch("Cast", {"x"}, {onnx::attr("to", int64_t{11})}))});
  expect_error(ErrorCode::bad_type, {"declares 'Cast_out' as float32", "f64[2]"}, [&] { m.import(); });
}

TEST_CASE("a model-local function is put in place of its call, attributes bound") {
  wire::Writer function, set;
  function.bytes(pb::FunctionProto::name, "Twice");
  function.bytes(pb::FunctionProto::domain, "mine");
  function.bytes(pb::FunctionProto::input, "a");
  function.bytes(pb::FunctionProto::output, "b");
  function.bytes(pb::FunctionProto::attribute, "slope");
  wire::Writer reference;
  reference.bytes(pb::AttributeProto::name, "alpha");
  reference.bytes(pb::AttributeProto::ref_attr_name, "slope");
  reference.integer(pb::AttributeProto::type, 1);
  function.bytes(pb::FunctionProto::node,
                 ModelText::node_bytes("LeakyRelu", {"a"}, {"h"}, {{reference.data()}}));
  function.bytes(pb::FunctionProto::node, ModelText::node_bytes("Add", {"h", "a"}, {"b"}));
  set.integer(pb::OperatorSetIdProto::version, 21);
  function.bytes(pb::FunctionProto::opset_import, set.data());
  ModelText m;
  wire::Writer all;
  all.bytes(pb::ModelProto::functions, function.data());
  m.functions = all.take();
  m.input("x", {2}).output("y").node("Twice", {"x"}, {"y"}, {onnx::attr("slope", 0.25)}, "mine");
  ir::Graph g = m.import();
  CHECK(count_ops(g, "leaky_relu") == 1);
  for (ir::NodeId id : g.order())
    if (g[id].is("leaky_relu")) CHECK(g[id].get_real("alpha") == 0.25);
}

TEST_CASE("bad graphs are refused by name") {
  auto refused = [](const ModelText& m, ErrorCode code, std::initializer_list<const char*> words) {
    expect_error(code, words, [&] { m.import(); });
  };
  ModelText base;
  base.input("x", {2, 3}).output("y");
  ModelText m = base;
  refused(m.node("Relu", {"nowhere"}, {"y"}), ErrorCode::bad_format,
          {"nothing produces 'nowhere'", "the_Relu"});
  m = base;
  refused(m.node("Add", {"x", "b"}, {"a"}).node("Add", {"x", "a"}, {"b"}).node("Neg", {"b"}, {"y"}),
          ErrorCode::bad_format, {"cycle", "the_Add"});
  m = base;
  refused(m.node("Neg", {"x"}, {"y"}).node("Abs", {"x"}, {"y"}), ErrorCode::bad_format,
          {"two values are named 'y'"});
  m = base;
  refused(m.node("Reluu", {"x"}, {"y"}), ErrorCode::unsupported_op, {"no op 'Reluu'", "nearest is Relu"});
  m = base;
  refused(m.node("Relu", {"x"}, {"y"}, {}, "com.example"), ErrorCode::unsupported_op,
          {"domain 'com.example'"});
  m = base;
  m.opset = 99;
  refused(m.node("Relu", {"x"}, {"y"}), ErrorCode::unsupported_version, {"operator set 99", "28"});
  m = base;
  m.opset = 0;
  refused(m.node("Relu", {"x"}, {"y"}), ErrorCode::bad_format, {"no operator set"});
  m = base;
  refused(m.node("Softmax", {"x"}, {"y"}, {onnx::attr("axis", "one")}), ErrorCode::bad_format,
          {"the_Softmax", "'axis' is not an integer"});
  m = base;
  refused(m.node("Softmax", {"x"}, {"y"}, {onnx::attr("axis", int64_t{7})}), ErrorCode::bad_shape,
          {"axis 7", "rank 2"});
  m = base;
  refused(m.node("MatMul", {"x", "x"}, {"y"}), ErrorCode::bad_shape, {"the_MatMul"});
}

TEST_CASE("an input without a shape asks for one and takes it") {
  ModelText m;
  m.value(pb::GraphProto::input, "x", ir::Type::unranked(DType::f32)).output("y").node("Relu", {"x"}, {"y"});
  expect_error(ErrorCode::bad_shape, {"'x' has no shape", "--shape x="}, [&] { m.import(); });
  onnx::ImportOptions options;
  options.input_shapes["x"] = {2, sym("N")};
  CHECK(m.import(options).type(m.import(options).outputs[0]).str() == "f32[2,N]");
  options.input_shapes["z"] = {1};
  expect_error(ErrorCode::bad_name, {"no input 'z'"}, [&] { m.import(options); });
  options.input_shapes.clear();
  options.fixed_sizes["x"] = {2, std::nullopt};
  CHECK(m.import(options).type(m.import(options).outputs[0]).str() == "f32[2,x.1]");
}

namespace {

// y = x resized to half its width, the sizes being computed in floats from its shape; z takes another input
// of that width.
ModelText halved() {
  ModelText m;
  m.input("x", {sym("N"), sym("H")}).input("other", {sym("H")}).input("free", {sym("F")}).output("y");
  m.initializer("half", from_doubles(DType::f32, {2}, {1, 0.5})).output("z");
  m.node("Shape", {"x"}, {"s"}).node("Cast", {"s"}, {"f"}, {onnx::attr("to", int64_t{1})});
  m.node("Mul", {"f", "half"}, {"g"}).node("Cast", {"g"}, {"sizes"}, {onnx::attr("to", int64_t{7})});
  m.node("Resize", {"x", "", "", "sizes"}, {"y"});
  return m.node("Concat", {"other", "free"}, {"z"}, {onnx::attr("axis", int64_t{0})});
}

}  // namespace

TEST_CASE("fixed sizes are numbers wherever their name occurs, and what is computed from them is known") {
  const ModelText m = halved();
  onnx::ImportOptions options;
  options.fixed_sizes["x"] = {2, 10};
  ir::Graph g = m.import(options);
  CHECK(g.type(g.outputs[0]).str() == "f32[2,5]");
  CHECK(g.type(g.outputs[1]).str() == "f32[F + 10]");
  CHECK(count_ops(g, "dynamic_fill") == 0);
  options.fixed_sizes["x"] = {2};
  expect_error(ErrorCode::bad_shape, {"input 'x' has rank 2, not 1"}, [&] { m.import(options); });
  options.fixed_sizes = {{"x", {2, 10}}, {"other", {9}}};
  expect_error(ErrorCode::bad_shape, {"(H) cannot be", "must agree"}, [&] { m.import(options); });
  options.fixed_sizes = {{"q", {2}}};
  expect_error(ErrorCode::bad_name, {"no input 'q'", "'x', 'other', 'free'"}, [&] { m.import(options); });
}

TEST_CASE("sizes that follow from values of a run become symbols, known entries beside them stay") {
  ir::Graph g = halved().import();
  const Shape& y = g.type(g.outputs[0]).shape;
  CHECK(y.size() == 2);
  CHECK(y[0].as_symbol());
  CHECK_FALSE(y[0] == sym("N"));

  ModelText lists;  // the sizes are put together of known and unknown ones
  lists.input("x", {sym("N"), 3, sym("H")})
      .input("wanted", {}, DType::i64)
      .output("y")
      .output("a")
      .output("b");
  lists.initializer("one", from_ints(DType::i64, {1}, {1}))
      .initializer("zero", from_ints(DType::i64, {1}, {0}));
  lists.initializer("two", from_ints(DType::i64, {1}, {2}));
  lists.node("Unsqueeze", {"wanted", "zero"}, {"w"}).node("Shape", {"x"}, {"s"});
  lists.node("Slice", {"s", "zero", "two"}, {"nc"})
      .node("Concat", {"nc", "w"}, {"sizes"}, {onnx::attr("axis", int64_t{0})});
  lists.node("Resize", {"x", "", "", "sizes"}, {"y"});
  lists.node("Concat", {"one", "w"}, {"parts"}, {onnx::attr("axis", int64_t{0})});
  lists.node("Split", {"x", "parts"}, {"a", "b"}, {onnx::attr("axis", int64_t{2})});
  g = lists.import();
  const Shape& resized = g.type(g.outputs[0]).shape;
  CHECK(resized[0] == sym("N"));
  CHECK(resized[1] == Dim(3));
  CHECK(g.type(g.outputs[1]).str() == "f32[N,3,1]");
  CHECK(g.type(g.outputs[2]).shape[2].as_symbol());

  ModelText strides;  // (H - 1) / 16 + 1, as exporters write the sizes of a strided layer
  strides.input("x", {sym("H")}).output("y").initializer("k", from_ints(DType::i64, {1}, {16}));
  strides.initializer("one", from_ints(DType::i64, {1}, {1}));
  strides.node("Shape", {"x"}, {"s"}).node("Sub", {"s", "one"}, {"t"}).node("Div", {"t", "k"}, {"u"});
  strides.node("Add", {"u", "one"}, {"v"}).node("ConstantOfShape", {"v"}, {"y"});
  g = strides.import();
  CHECK(count_ops(g, "dynamic_fill") == 0);
  const Dim size = g.type(g.outputs[0]).shape[0];
  for (auto [h, want] : {std::pair{0, 1}, {1, 1}, {16, 1}, {17, 2}, {33, 3}})
    CHECK(size.eval({{"H", h}}) == want);
}

TEST_CASE("a value that must be known and is not: the message says which sizes to fix, or that none helps") {
  auto scaled = [](bool by_shape) {
    ModelText m;
    m.input("x", {2, sym("H")}).input("wanted", {2}).output("y");
    m.node("Shape", {"x"}, {"s"}).node("Cast", {"s"}, {"f"}, {onnx::attr("to", int64_t{1})});
    m.node("Sqrt", {by_shape ? "f" : "wanted"}, {"scales"});
    return m.node("Resize", {"x", "", "scales"}, {"y"});
  };
  expect_error(ErrorCode::bad_shape, {"the scales must be known", "the_Resize", "--shape x=2xH"},
               [&] { scaled(true).import(); });
  expect_error(ErrorCode::bad_shape, {"the scales must be known", "values of a run"},
               [&] { scaled(false).import(); });
}
