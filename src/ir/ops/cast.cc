// SPDX-License-Identifier: Apache-2.0
#include <cmath>
#include <cstring>

#include "ir/ops/common.h"
#include "tensor/float_types.h"
#include "tensor/narrow.h"

namespace pelton::ir {
namespace {

void infer_cast(InferContext& c) {
  const std::string& round = c.node.get_text("round");
  c.require(round == "nearest" || round == "up" || round == "down", ErrorCode::usage, "C1",
            cat("cannot round '", round, "'"));
  DType from = c.dtype(0), to = c.node.get_dtype("to");
  c.output(0, to, c.shape(0));
  if (is_int(from) && is_int(to))
    if (auto contents = c.contents(0)) {
      // Only where no value can wrap. Bounds of expressions are coarse, and no tensor that exists has a size
      // beyond 31 bits in a shape that its model narrows to i32: there only constants are held to the range.
      for (const Dim& d : *contents) {
        if ((to == DType::i32 || to == DType::i64) && !d.is_const()) continue;
        Range r = d.range(c.ranges());
        if (static_cast<double>(r.min) < lowest(to) || static_cast<double>(r.max) > highest(to)) return;
      }
      c.output_contents(0, *contents);
    }
}

// Text of numbers as ONNX prints them: shortest round-trip, NaN, INF, -INF.
std::string text_of(const Tensor& t, int64_t i) {
  if (t.dtype() == DType::boolean) return t.get_int(i) ? "1" : "0";
  if (!is_float(t.dtype()))
    return t.dtype() == DType::u64 ? cat(static_cast<uint64_t>(t.get_int(i))) : cat(t.get_int(i));
  double v = t.get_double(i);
  if (std::isnan(v)) return "NaN";
  if (std::isinf(v)) return v < 0 ? "-INF" : "INF";
  char buffer[32];
  auto r = t.dtype() == DType::f64 ? std::to_chars(buffer, buffer + sizeof buffer, v)
                                   : std::to_chars(buffer, buffer + sizeof buffer, static_cast<float>(v));
  return std::string(buffer, r.ptr);
}

void number_from_text(EvalContext& c, Tensor& out, int64_t i, const std::string& s) {
  const char* begin = s.c_str();
  char* end = nullptr;
  double v = std::strtod(begin, &end);  // accepts inf and nan in any case
  if (s.empty() || *end != '\0')
    c.refuse(ErrorCode::bad_type, cat("cannot read '", s, "' as ", name(out.dtype())));
  if (!is_int(out.dtype())) return out.set_double(i, v);
  int64_t whole = 0;
  auto r = std::from_chars(begin, begin + s.size(), whole);
  if (r.ec == std::errc() && r.ptr == begin + s.size())
    out.set_int(i, whole);
  else
    out.set_double(i, v);
}

// f8e8m0 holds powers of two only; `up` and `down` choose the neighbour where `nearest` would decide by
// distance.
double power_of_two(double v, const std::string& round) {
  int e = 0;
  if (round == "nearest" || !(v > 0) || std::isinf(v) || std::frexp(v, &e) == 0.5) return v;
  return std::ldexp(1.0, round == "up" ? e : e - 1);
}

// The same as the general loop, for tensors of 16 bits; false for other types.
bool fast_cast(const Tensor& x, Tensor& out) {
  const DType from = x.dtype(), to = out.dtype();
  auto each = [&](auto read, auto convert, auto* to_data) {
    for (int64_t i = 0; i < x.count(); ++i) to_data[i] = convert(read[i]);
    return true;
  };
  if (to == DType::f32 && (from == DType::f16 || from == DType::bf16)) {
    auto data = static_cast<const uint16_t*>(x.data());
    auto result = static_cast<float*>(out.mutable_data());
    return from == DType::f16 ? each(data, f16_to_float, result) : each(data, bf16_to_float, result);
  }
  return false;
}

void eval_cast(EvalContext& c) {
  const Tensor& x = c.in(0);
  DType to = c.node.get_dtype("to"), from = x.dtype();
  bool saturate = c.node.get_bool("saturate");
  if (from == to) return c.out(0, x);
  if (from == DType::f32 && (to == DType::f16 || to == DType::bf16)) return c.out(0, narrowed(x, to));
  Tensor out = to == DType::string ? Tensor(to, x.dims()) : Tensor::zeros(to, x.dims());
  bool to_small = is_float(to) && bits(to) <= 8;
  if (fast_cast(x, out)) return c.out(0, std::move(out));
  for (int64_t i = 0; i < x.count(); ++i) {
    if (from == DType::string)
      number_from_text(c, out, i, x.strings()[static_cast<size_t>(i)]);
    else if (to == DType::string)
      out.mutable_strings()[static_cast<size_t>(i)] = text_of(x, i);
    else if (to_small) {
      // Saturation and NaN rules of the small formats; set_double rounds without saturating.
      double v = x.get_double(i);
      if (to == DType::f8e8m0) v = power_of_two(v, c.node.get_text("round"));
      uint32_t pattern = small_float_from_double(to, v, saturate);
      if (bits(to) == 8)
        static_cast<uint8_t*>(out.mutable_data())[i] = static_cast<uint8_t>(pattern);
      else
        out.set_double(i, small_float_to_double(to, pattern));
    } else if (to == DType::boolean)
      out.set_int(i, is_float(from) ? x.get_double(i) != 0 : x.get_int(i) != 0);
    else if (is_float(from) || is_float(to))
      out.set_double(i, x.get_double(i));
    else
      out.set_int(i, x.get_int(i));
  }
  c.out(0, std::move(out));
}

void infer_bitcast(InferContext& c) {
  DType from = c.dtype(0), to = c.node.get_dtype("to");
  c.require(from != DType::string && to != DType::string && bits(from) == bits(to), ErrorCode::bad_type, "C1",
            cat("cannot reinterpret ", name(from), " as ", name(to), ": widths differ"));
  c.output(0, to, c.shape(0));
}
void eval_bitcast(EvalContext& c) {
  const Tensor& x = c.in(0);
  Tensor out(c.node.get_dtype("to"), x.dims());
  if (x.count()) std::memcpy(out.mutable_data(), x.data(), static_cast<size_t>(x.bytes()));
  c.out(0, std::move(out));
}

}  // namespace

void add_cast(OpRows& rows) {
  OpDef cast;
  cast.name = "cast";
  cast.attrs = {{"to", AttrKind::dtype, {}},
                {"saturate", AttrKind::boolean, Attr(true)},
                {"round", AttrKind::text, Attr(std::string("nearest"))}};
  cast.constraints = {"C1: round is nearest, up or down"};
  cast.infer = infer_cast;
  cast.eval = eval_cast;
  cast.layout = LayoutFreedom::any_same;
  cast.sharding = cast.batching = "any";
  rows.push_back(cast);
  OpDef bitcast;
  bitcast.name = "bitcast";
  bitcast.attrs = {{"to", AttrKind::dtype, {}}};
  bitcast.constraints = {"C1: both types have the same width"};
  bitcast.infer = infer_bitcast;
  bitcast.eval = eval_bitcast;
  bitcast.precision = Precision::exact;
  bitcast.layout = LayoutFreedom::any_same;
  bitcast.alias = AliasRule::view;
  rows.push_back(bitcast);
}

}  // namespace pelton::ir
