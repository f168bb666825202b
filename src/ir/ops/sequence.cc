// SPDX-License-Identifier: Apache-2.0
// Sequences and optionals. A sequence type lists the type of each item where the length is known; otherwise
// it has one element type that all items fit. Sizes of such an element are its own: whoever takes an item out
// gets fresh symbols for them. Evaluation in sequence_eval.cc.
#include "ir/ops/sequence.h"
#include "ir/ops/common.h"
#include "ir/ops/exact_row.h"
#include "ir/text.h"

namespace pelton::ir {
namespace {

constexpr auto kShape = ErrorCode::bad_shape;
constexpr auto kType = ErrorCode::bad_type;
constexpr size_t kMaxItems = 256;  // longer sequences are described by their element only

const Type& require_sequence(InferContext& c) {
  const Type& t = c.type(0);
  c.require(t.kind == TypeKind::sequence, kType, "C1", cat("needs a sequence, not ", t.str()));
  return t;
}

// The type both fit: other sizes become fresh, another rank unknown.
Type common(InferContext& c, const Type& a, const Type& b) {
  if (a == b) return a;
  if (a.is_tensor() && b.is_tensor() && a.dtype == b.dtype &&
      (!a.ranked || !b.ranked || a.rank() != b.rank()))
    return Type::unranked(a.dtype);
  c.require(a.kind == b.kind && (!a.is_tensor() || a.dtype == b.dtype), kType, "C2",
            cat("holds ", a.str(), " and ", b.str(), " in one sequence"));
  return join(c.graph, a, b, c.graph.describe(c.id));
}
Type sequence_of(InferContext& c, std::vector<Type> items) {
  Type element = items[0];
  for (const Type& t : items) element = common(c, element, t);
  if (items.size() > kMaxItems) return Type::sequence(std::move(element));
  return Type::sequence_of(std::move(items), std::move(element));
}
// An item of a sequence whose items are not known one by one, as the result of the node.
Type taken_out(InferContext& c, Type element) {
  for (size_t d = 0; d < element.shape.size(); ++d)
    if (Dim& size = element.shape[d]; !size.is_const()) size = c.fresh_size(0, d, size.range(c.ranges()));
  return element;
}
// Position in [0, count), or in [0, count] for insertion, of a constant index; none if not known.
std::optional<size_t> position(InferContext& c, size_t input, int64_t count) {
  c.require(is_int(c.dtype(input)), kType, "C3", cat("needs an integer index, not ", c.type(input).str()));
  auto known = c.contents(input);
  if (!known || known->size() != 1 || !(*known)[0].is_const()) return std::nullopt;
  int64_t i = (*known)[0].value(), at = i < 0 ? i + count : i;
  bool inside = at >= 0 && (at < count || (c.node.is("seq_insert") && at == count));
  c.require(inside, kShape, "C3", cat("has index ", i, " in a sequence of ", count));
  return static_cast<size_t>(at);
}

void infer_make(InferContext& c) {
  std::vector<Type> items;
  for (size_t i = 0; i < c.input_count(); ++i) items.push_back(c.type(i));
  c.output(0, sequence_of(c, std::move(items)));
}
void infer_empty(InferContext& c) {
  c.output(0, Type::sequence_of({}, Type::unranked(c.node.get_dtype("dtype"))));
}

void infer_insert(InferContext& c) {
  const Type& s = require_sequence(c);
  const Type& x = c.type(1);
  if (s.items) {
    std::vector<Type> items = *s.items;
    std::optional<size_t> at = items.size();
    if (c.has(2)) at = position(c, 2, static_cast<int64_t>(items.size()));
    if (items.empty())
      c.require(!s.element->is_tensor() || !x.is_tensor() || x.dtype == s.element->dtype, kType, "C2",
                cat("holds ", s.element->str(), " and ", x.str(), " in one sequence"));
    if (at) {
      items.insert(items.begin() + static_cast<std::ptrdiff_t>(*at), x);
      return c.output(0, sequence_of(c, std::move(items)));
    }
  }
  c.output(0, Type::sequence(common(c, *s.element, x)));
}

void infer_erase(InferContext& c) {
  const Type& s = require_sequence(c);
  if (s.items) {
    std::vector<Type> items = *s.items;
    c.require(!items.empty(), kShape, "C3", "takes from an empty sequence");
    std::optional<size_t> at = items.size() - 1;
    if (c.has(1)) at = position(c, 1, static_cast<int64_t>(items.size()));
    if (at) {
      items.erase(items.begin() + static_cast<std::ptrdiff_t>(*at));
      return c.output(0, Type::sequence_of(std::move(items), *s.element));
    }
  }
  c.output(0, Type::sequence(*s.element));
}

void infer_at(InferContext& c) {
  const Type& s = require_sequence(c);
  if (s.items)
    if (auto at = position(c, 1, static_cast<int64_t>(s.items->size()))) return c.output(0, (*s.items)[*at]);
  c.require(is_int(c.dtype(1)), kType, "C3", cat("needs an integer index, not ", c.type(1).str()));
  c.output(0, taken_out(c, *s.element));
}

void infer_length(InferContext& c) {
  const Type& s = require_sequence(c);
  c.output(0, DType::i64, {});
  if (s.items) c.output_contents(0, {Dim(static_cast<int64_t>(s.items->size()))});
}

void infer_concat_items(InferContext& c) {
  const Type& s = require_sequence(c);
  bool new_axis = c.node.get_bool("new_axis");
  auto require_ranked = [&](const Type& t) {
    c.require(t.is_tensor() && t.ranked, kShape, "C4", cat("needs items of a known rank, not ", t.str()));
  };
  if (!s.items) {
    require_ranked(*s.element);
    Type t = *s.element;
    auto axis = static_cast<size_t>(c.axis(c.node.get_int("axis"), t.rank() + new_axis));
    if (new_axis) t.shape.insert(t.shape.begin() + static_cast<std::ptrdiff_t>(axis), Dim(0));
    t.shape[axis] = c.fresh_size(0, axis, {0, INT64_MAX});
    for (size_t d = 0; d < t.shape.size(); ++d)
      if (Dim& size = t.shape[d]; d != axis && !size.is_const())
        size = c.fresh_size(0, d, size.range(c.ranges()));
    return c.output(0, t);
  }
  c.require(!s.items->empty(), kShape, "C4", "joins the items of an empty sequence");
  Type t = (*s.items)[0];
  require_ranked(t);
  auto axis = static_cast<size_t>(c.axis(c.node.get_int("axis"), t.rank() + new_axis));
  for (size_t i = 1; i < s.items->size(); ++i) {
    const Type& item = (*s.items)[i];
    require_ranked(item);
    c.require(item.rank() == t.rank(), kShape, "C4", cat("joins ", t.str(), " and ", item.str()));
    for (size_t d = 0; d < t.shape.size(); ++d)
      t.shape[d] =
          !new_axis && d == axis ? t.shape[d] + item.shape[d] : c.same(t.shape[d], item.shape[d], "C4");
  }
  if (new_axis)
    t.shape.insert(t.shape.begin() + static_cast<std::ptrdiff_t>(axis),
                   Dim(static_cast<int64_t>(s.items->size())));
  c.output(0, t);
}

// Without sizes: one index of the axis an item. One size: runs of it, the last may be shorter. Several:
// theirs.
void infer_split(InferContext& c) {
  Type element = Type::tensor(c.dtype(0), c.shape(0));
  auto axis = static_cast<size_t>(c.axis(c.node.get_int("axis"), c.rank(0)));
  Dim size = element.shape[axis];
  std::vector<Dim> sizes;
  bool known = false;
  if (!c.has(1)) {
    known = size.is_const() && size.value() <= static_cast<int64_t>(kMaxItems);
    if (known) sizes.assign(static_cast<size_t>(size.value()), Dim(1));
    element.shape[axis] = 1;
  } else {
    c.require(is_int(c.dtype(1)) && c.rank(1) <= 1, kType, "C3",
              cat("needs integer sizes, not ", c.type(1).str()));
    auto contents = c.contents(1);
    if (contents && c.rank(1) == 1) {
      known = true;
      sizes = *contents;
      Dim sum = 0;
      for (const Dim& d : sizes) sum = sum + d;
      c.same(sum, size, "C4");
    } else if (contents && contents->size() == 1 && (*contents)[0].is_const() && size.is_const()) {
      int64_t run = (*contents)[0].value();
      c.require(run > 0, kShape, "C3", cat("splits into runs of ", run));
      known = size.value() / run < static_cast<int64_t>(kMaxItems);
      for (int64_t at = 0; known && at < size.value(); at += run)
        sizes.emplace_back(std::min(run, size.value() - at));
    }
    element.shape[axis] = c.fresh_size(0, axis, {0, size.range(c.ranges()).max});
  }
  bool keep = c.node.get_bool("keep_dims") || c.has(1);
  auto piece = [&](Dim d) {
    Type t = element;
    if (keep)
      t.shape[axis] = std::move(d);
    else
      t.shape.erase(t.shape.begin() + static_cast<std::ptrdiff_t>(axis));
    return t;
  };
  if (!known) return c.output(0, Type::sequence(piece(element.shape[axis])));
  std::vector<Type> items;
  for (const Dim& d : sizes) items.push_back(piece(d));
  if (items.empty()) return c.output(0, Type::sequence_of({}, piece(element.shape[axis])));
  c.output(0, sequence_of(c, std::move(items)));
}

void infer_opt_make(InferContext& c) {
  if (c.has(0)) return c.output(0, Type::optional(c.type(0)));
  const std::string& like = c.node.get_text("like");
  c.require(!like.empty(), ErrorCode::usage, "C1", "needs a value or a type");
  c.output(0, Type::optional(parse_type(like)));
}
const Type& require_optional(InferContext& c) {
  const Type& t = c.type(0);
  c.require(t.kind == TypeKind::optional, kType, "C1", cat("needs an optional, not ", t.str()));
  return t;
}
void infer_opt_has(InferContext& c) {
  require_optional(c);
  c.output(0, DType::boolean, {});
}
void infer_opt_get(InferContext& c) {
  c.output(0, *require_optional(c).element);
}

}  // namespace

void add_sequence(OpRows& rows) {
  AttrDef axis{"axis", AttrKind::integer, Attr(int64_t{0})};
  AttrDef new_axis{"new_axis", AttrKind::boolean, Attr(false)},
      keep{"keep_dims", AttrKind::boolean, Attr(true)};
  AttrDef dtype{"dtype", AttrKind::dtype, Attr(DType::f32)},
      like{"like", AttrKind::text, Attr(std::string())};
  constexpr std::string_view sequence = "C1: the operand is a sequence",
                             optional = "C1: the operand is an optional";
  constexpr std::string_view items = "C2: items have one kind and element type";
  constexpr std::string_view indices = "C3: indices and sizes are integers inside the sequence";
  constexpr std::string_view shapes = "C4: shapes fit";
  auto add = [&](std::string_view name, int min_inputs, int max_inputs, std::vector<AttrDef> attrs,
                 void (*infer)(InferContext&), void (*eval)(EvalContext&),
                 std::vector<std::string_view> constraints) {
    rows.push_back(exact_row(Family::sequence, name, min_inputs, max_inputs, std::move(attrs), infer, eval,
                             std::move(constraints)));
  };
  add("seq_make", 1, -1, {}, infer_make, eval_seq_make, {items});
  add("seq_empty", 0, 0, {dtype}, infer_empty, eval_seq_empty, {});
  add("seq_insert", 2, 3, {}, infer_insert, eval_seq_insert, {sequence, items, indices});
  add("seq_erase", 1, 2, {}, infer_erase, eval_seq_erase, {sequence, indices});
  add("seq_at", 2, 2, {}, infer_at, eval_seq_at, {sequence, indices});
  add("seq_length", 1, 1, {}, infer_length, eval_seq_length, {sequence});
  add("seq_concat", 1, 1, {axis, new_axis}, infer_concat_items, eval_seq_concat, {sequence, shapes});
  add("seq_split", 1, 2, {axis, keep}, infer_split, eval_seq_split, {indices, shapes});
  add("opt_make", 0, 1, {like}, infer_opt_make, eval_opt_make, {"C1: a value or a type"});
  add("opt_has", 1, 1, {}, infer_opt_has, eval_opt_has, {optional});
  add("opt_get", 1, 1, {}, infer_opt_get, eval_opt_get, {optional});
}

}  // namespace pelton::ir
