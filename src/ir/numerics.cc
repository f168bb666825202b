// SPDX-License-Identifier: Apache-2.0
#include "ir/numerics.h"

#include <algorithm>

namespace pelton::ir {
namespace {

const Numerics kClasses[] = {
    {NumericClass::arithmetic, "arithmetic", "none", "once, to nearest even", "propagates", "as IEEE 754",
     "as IEEE 754", "floats to infinity, integers wrap, integer division by 0 gives 0"},
    {NumericClass::extremum, "extremum", "none", "exact", "wins", "ordered",
     "0 and -0 are equal, either may result", "none"},
    {NumericClass::comparison, "comparison", "none", "exact", "false (ne: true; is_nan: true)", "ordered",
     "0 equals -0", "none"},
    {NumericClass::bitwise, "bitwise", "none", "exact", "-", "-", "-",
     "shifts by the width or more give 0 or the sign"},
    {NumericClass::movement, "movement", "none", "exact", "moved", "moved", "moved", "none"},
    {NumericClass::sum, "sum", "f32 for f16, bf16 and f32; f64; i32 for 8-bit operands; else the type",
     "once, after the last term (and a bias)", "propagates", "as IEEE 754: opposite infinities give NaN",
     "a sum of zeros may have either sign", "floats to infinity after rounding, integers wrap"},
    {NumericClass::normalizing, "normalizing", "f32, also for f16 and bf16 operands; f64", "once, at the end",
     "propagates through its lane", "a lane without a finite maximum gives NaN", "either sign",
     "none: exponentials are taken below a maximum"},
    {NumericClass::blending, "blending", "f32 (positions too); f64", "once, at the end; integers truncate",
     "of an element with weight 0 is ignored", "as IEEE 754", "either sign", "integers saturate"},
    {NumericClass::ordering, "ordering", "none", "exact", "above every number", "ordered",
     "0 equals -0, equals keep their order", "none"},
    {NumericClass::cast, "cast", "none", "to nearest even; floats to integers truncate",
     "stays NaN; 0 in integers; true in bool", "stays; saturates in integers and, if asked, in 8-bit floats",
     "kept; true or false in bool by != 0",
     "integers to narrower integers wrap; floats to integers saturate; floats to floats give infinity"},
    {NumericClass::quantize, "quantize", "f32", "to nearest even, then saturates",
     "0 before the zero point is added", "saturates", "equal", "saturates"},
    {NumericClass::random, "random", "none", "once, from f64", "-", "-", "-", "none"},
    {NumericClass::structure, "structure", "as its parts", "as its parts", "as its parts", "as its parts",
     "as its parts", "as its parts"},
};

bool any_of(std::string_view name, std::initializer_list<std::string_view> names) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

NumericClass class_of(const OpDef& op) {
  std::string_view n = op.name;
  if (any_of(n, {"max", "min", "relu", "clamp", "reduce_max", "reduce_min", "arg_max", "arg_min", "max_pool",
                 "max_roi_pool"}))
    return NumericClass::extremum;
  if (any_of(n, {"eq", "ne", "lt", "le", "gt", "ge", "is_nan", "is_inf_pos", "is_inf_neg"}))
    return NumericClass::comparison;
  if (any_of(n, {"and", "or", "xor", "not", "shift_left", "shift_right"})) return NumericClass::bitwise;
  if (any_of(n, {"resample", "picture_resample", "grid_sample", "affine_grid", "roi_align", "deform_conv"}))
    return NumericClass::blending;
  if (any_of(n, {"topk", "sort", "unique", "nms"})) return NumericClass::ordering;
  if (n == "cast") return NumericClass::cast;
  switch (op.family) {
    case Family::quantize:
      return NumericClass::quantize;
    case Family::random:
      return NumericClass::random;
    case Family::control:
    case Family::sequence:
    case Family::collective:
    case Family::custom:
      return NumericClass::structure;
    default:
      break;
  }
  switch (op.precision) {
    case Precision::accumulates:
      return NumericClass::sum;
    case Precision::sensitive:
      return NumericClass::normalizing;
    case Precision::exact:
      return NumericClass::movement;
    case Precision::follows:
      return NumericClass::arithmetic;
  }
  return NumericClass::arithmetic;
}

}  // namespace

const Numerics& numerics(const OpDef& op) {
  return kClasses[static_cast<size_t>(class_of(op))];
}

std::string numerics_table() {
  std::string out =
      "| class | accumulates in | rounds | NaN | infinity | signed zero | overflow |\n"
      "|---|---|---|---|---|---|---|\n";
  for (const Numerics& n : kClasses)
    append(out, cat("| ", n.name, " | ", n.accumulation, " | ", n.rounding, " | ", n.nan, " | ", n.infinity,
                    " | ", n.signed_zero, " | ", n.overflow, " |\n"));
  append(out, "\n| class | ops |\n|---|---|\n");
  for (const Numerics& n : kClasses) {
    std::string names;
    for (const OpDef* op : all_ops())
      if (class_of(*op) == n.kind) append(names, cat(names.empty() ? "" : " ", "`", op->name, "`"));
    append(out, cat("| ", n.name, " | ", names, " |\n"));
  }
  return out;
}

DType accumulator(DType storage) {
  if (storage == DType::f16 || storage == DType::bf16) return DType::f32;
  if (storage == DType::i8 || storage == DType::u8) return DType::i32;
  return storage;
}

}  // namespace pelton::ir
