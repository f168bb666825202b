// SPDX-License-Identifier: Apache-2.0
// The op table: one row an op. Everything that is known about an op stands in its row; printing, hashing,
// serialisation, verification and code generation derive from it. Rows are added by explicit calls
// (ir/ops/table.cc, plug-ins), never by static constructors.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "ir/graph.h"

namespace pelton::ir {

class InferContext;     // ir/infer.h
class EvalContext;      // ir/eval.h
class GradientContext;  // ir/gradient.h
class Builder;          // ir/builder.h

enum class Family : uint8_t {
  pointwise,
  reduction,
  shape,
  indexing,
  contraction,
  convolution,
  pooling,
  sorting,
  random,
  collective,
  quantize,
  control,
  sequence,
  fft,
  composite,
  text,
  custom,
};
std::string_view name(Family family);

struct AttrDef {
  std::string_view name;
  AttrKind kind;
  std::optional<Attr> default_value;  // none: the attribute is required
};

// Scalar meaning of a pointwise op, one element at a time; a missing function means the kind is not accepted.
// Integer functions compute in 64 bits, the result wraps to the type. `code` is a C expression over $0, $1,
// $2 in the compute type (f32 for f16 and bf16), used by generated kernels; empty: not generated.
struct ScalarDef {
  double (*real)(const double* x) = nullptr;
  int64_t (*sint)(const int64_t* x) = nullptr;
  uint64_t (*uint)(const uint64_t* x) = nullptr;
  bool (*boolean)(const bool* x) = nullptr;
  bool yields_bool = false;         // comparisons and tests
  std::string_view code, int_code;  // int_code: for integers, where it differs
};

// What lower precision does to an op (see the numerics page).
enum class Precision : uint8_t {
  follows,      // computes in whatever it is given; f16 and bf16 round once at the end
  accumulates,  // sums in f32 or wider whatever the storage type
  sensitive,    // stays in f32: exponentials of large sums, norms, losses
  exact,        // moves or selects bits
};
// Which physical layouts an op accepts besides plain.
enum class LayoutFreedom : uint8_t {
  plain_only,
  any_same,  // any layout, the same on every full-rank input and output
  channels,  // works per channel or per pixel: channels_last and blocked have native forms
};
enum class AliasRule : uint8_t { none, in_place, view };  // view: the output is the input's bytes
enum class Effects : uint8_t { pure, random, ordered };   // ordered: takes and yields a token

struct Cost {
  double flops = 0;  // multiply-add counts two
  double bytes_read = 0, bytes_written = 0;
};

struct OpDef {
  std::string_view name;
  Family family = Family::pointwise;
  int version = 1;
  int min_inputs = 1, max_inputs = 1;  // max -1: any number
  int min_outputs = 1, max_outputs = 1;
  std::vector<AttrDef> attrs;
  std::vector<std::string_view> constraints;  // "C1: ..."; cited by messages and tests

  void (*infer)(InferContext&) =
      nullptr;                           // result types and symbolic contents; throws on a broken constraint
  void (*eval)(EvalContext&) = nullptr;  // the definition of the op, in plain code
  double (*flops)(const Graph&, const Node&, const std::vector<Dims>& in,
                  const std::vector<Dims>& out) = nullptr;
  const ScalarDef* scalar = nullptr;  // pointwise only
  // Builds the op from primitives at the builder's insertion point and returns the results; null: primitive.
  std::vector<ValueId> (*decompose)(Builder&, const Node&) = nullptr;
  // Reverse-mode rule: builds the gradients of the inputs from those of the outputs (filled in by
  // <family>_grad.cc). Null: differentiated through the decomposition, or not at all.
  void (*gradient)(GradientContext&) = nullptr;
  Precision precision = Precision::follows;
  LayoutFreedom layout = LayoutFreedom::plain_only;
  AliasRule alias = AliasRule::none;
  Effects effects = Effects::pure;
  std::string_view sharding;  // einsum-like rule, e.g. "mk,kn->mn"; empty: replicated only
  std::string_view batching;  // how a leading batch dim passes through; empty: not batchable

  const AttrDef* find_attr(std::string_view attr_name) const;
};

// All rows, built in once on first use. Thread-safe; rows stay where they are for the life of the process.
const OpDef* find_op(std::string_view name);
const OpDef& op(std::string_view name);  // unsupported_op error names the nearest row
std::vector<const OpDef*> all_ops();     // by name
void add_op(OpDef def);                  // a second row of the same name is refused (bad_name)

}  // namespace pelton::ir
