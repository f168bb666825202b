// SPDX-License-Identifier: Apache-2.0
#include "interp/numerics.h"

#include <cmath>

#include "ir/infer.h"
#include "ir/op.h"

namespace pelton::interp {

using namespace ir;

double ulp(DType type, double v) {
  if (!is_float(type)) return 0;
  // Explicit bits of the fraction and the exponent of the least normal number.
  int fraction = 0, least = 0;
  switch (type) {
    case DType::f64:
      fraction = 52, least = -1022;
      break;
    case DType::f32:
      fraction = 23, least = -126;
      break;
    case DType::f16:
      fraction = 10, least = -14;
      break;
    case DType::bf16:
      fraction = 7, least = -126;
      break;
    case DType::f8e4m3fn:
      fraction = 3, least = -6;
      break;
    case DType::f8e4m3fnuz:
      fraction = 3, least = -7;
      break;
    case DType::f8e5m2:
      fraction = 2, least = -14;
      break;
    case DType::f8e5m2fnuz:
      fraction = 2, least = -15;
      break;
    case DType::f4e2m1:
      fraction = 1, least = 0;
      break;
    default:
      fraction = 0, least = -127;  // f8e8m0
  }
  if (!std::isfinite(v)) return INFINITY;
  int exponent = least;
  if (v != 0) exponent = std::max(std::ilogb(v), least);
  return std::ldexp(1.0, exponent - fraction);
}

namespace {

DType exact_type(DType t) {
  return t == DType::f32 || t == DType::f16 || t == DType::bf16 ? DType::f64 : t;
}
Type exact_type(const Type& t) {
  Type out = t;
  out.dtype = exact_type(t.dtype);
  if (t.element) out.element = std::make_shared<const Type>(exact_type(*t.element));
  if (t.items) {
    std::vector<Type> items;
    for (const Type& item : *t.items) items.push_back(exact_type(item));
    out.items = std::make_shared<const std::vector<Type>>(std::move(items));
  }
  return out;
}

}  // namespace

Tensor exact_input(const Tensor& t) {
  if (exact_type(t.dtype()) == t.dtype()) return t;
  return from_doubles(DType::f64, t.dims(), to_doubles(t));
}

Graph exact_form(const Graph& graph) {
  Graph g = graph;
  for (ValueId v : g.inputs) g.edit(v).type = exact_type(g.type(v));
  for (Slot& s : g.slots) {
    s.type = exact_type(s.type);
    g.edit(s.old_value).type = s.type;
    if (s.initial.defined()) s.initial = exact_input(s.initial);
  }
  for (NodeId id : std::vector<NodeId>(g.order())) {
    if (g[id].is("bitcast")) fail(ErrorCode::bad_type, "bitcast has no f64 form", g.describe(id));
    for (auto& [key, value] : g.edit(id).attrs) {
      if (auto t = std::get_if<Tensor>(&value)) value = exact_input(*t);
      if (auto t = std::get_if<DType>(&value)) value = exact_type(*t);
      if (auto body = std::get_if<GraphPtr>(&value)) {
        auto inner = std::make_shared<Graph>(exact_form(**body));
        inner->symbols = g.symbols;
        value = GraphPtr(std::move(inner));
      }
    }
    // Defaults are not in the list of attributes.
    for (const AttrDef& def : g.op(id).attrs)
      if (def.kind == AttrKind::dtype && def.default_value && !g[id].has_attr(def.name))
        g.edit(id).attrs.emplace(def.name, exact_type(std::get<DType>(*def.default_value)));
    infer(g, id);
  }
  return g;
}

Acceptance accept(const Tensor& got, const Tensor& exact, const Tensor& straightforward, double least_error) {
  Acceptance a;
  auto refuse = [&](std::string why, int64_t at) {
    if (!a.accepted) return;
    a.accepted = false;
    a.reason = std::move(why);
    a.worst = at;
  };
  if (got.dims() != exact.dims() || got.dims() != straightforward.dims()) {
    refuse(cat("got ", got.str(), ", expected shape ", exact.dims()), -1);
    return a;
  }
  if (!is_float(got.dtype())) {
    for (int64_t i = 0; i < got.count(); ++i) {
      auto at = static_cast<size_t>(i);
      bool same = got.dtype() == DType::string ? got.strings()[at] == exact.strings()[at]
                                               : got.get_int(i) == exact.get_int(i);
      if (!same) refuse(cat("element ", i, " of ", got.str(), " differs"), i);
    }
    return a;
  }
  double largest = 0, base = least_error;
  int64_t worst = -1;
  for (int64_t i = 0; i < got.count(); ++i) {
    double x = got.get_double(i), e = exact.get_double(i), s = straightforward.get_double(i);
    if (!std::isfinite(s) || !std::isfinite(e)) {
      // Overflow of the type is what the straightforward evaluation says it is.
      bool same = std::isnan(s) ? std::isnan(x) : std::isinf(s) ? x == s : std::isfinite(x);
      if (!same) refuse(cat("element ", i, " is ", x, ", expected ", s), i);
      continue;
    }
    if (!std::isfinite(x)) {
      refuse(cat("element ", i, " is ", x, ", expected ", e), i);
      continue;
    }
    largest = std::max(largest, std::fabs(e));
    base = std::max(base, std::fabs(s - e));
    if (double d = std::fabs(x - e); worst < 0 || d > a.error) {
      a.error = d;
      worst = i;
    }
  }
  a.allowed = 2 * base + ulp(got.dtype(), largest);
  if (a.error > a.allowed)
    refuse(cat("element ", worst, " is off by ", a.error, ", more than the ", a.allowed, " allowed"), worst);
  a.worst = a.worst < 0 ? worst : a.worst;
  return a;
}

}  // namespace pelton::interp
