// SPDX-License-Identifier: Apache-2.0
#include "codegen/cuda_emit.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "codegen/cuda_scalar.h"
#include "ir/op.h"

namespace pelton::codegen {
namespace {

using Kind = Statement::Kind;

bool cooperative(const Block& block) {
  for (const Statement& s : block)
    if (s.kind == Kind::reduce ||
        (s.kind == Kind::loop && (s.loop == LoopKind::lanes || cooperative(s.body))))
      return true;
  return false;
}

class Emitter {
 public:
  Emitter(const Kernel& kernel, const CudaOptions& options) : k_(kernel), options_(options) {
    for (size_t i = 0; i < k_.sizes.size(); ++i) names_.emplace(k_.sizes[i], Dim::symbol(cat("n", i)));
  }

  CudaKernel run() {
    CudaKernel out;
    out.entry = identifier(k_.name);
    out.wide_index = options_.wide_index;
    const Statement* grid = nullptr;
    for (const Statement& s : k_.body)
      if (s.kind == Kind::loop && s.loop == LoopKind::grid) {
        PELTON_CHECK(!grid, "kernel ", k_.name, " has two grid loops");
        grid = &s;
      }
    PELTON_CHECK(grid, "kernel ", k_.name, " has no grid loop");
    // Short rows get a warp each, long ones a block.
    bool rows = cooperative(grid->body);
    int threads = rows ? row_threads(*grid) : 0;
    columns_ = rows && options_.columns;
    if (columns_) options_.vector = 1;
    block_ = options_.block ? options_.block : threads > 32 && !columns_ ? threads : 256;
    team_ = !rows ? 0 : columns_ ? block_ / 32 : threads > 32 ? block_ : 32;
    PELTON_CHECK(block_ % 32 == 0 && block_ >= 32 && block_ <= 1024, "block of ", block_, " threads");
    out.block = block_;
    low_ = true;
    for (const Buffer& b : k_.buffers) low_ &= !b.output || b.dtype == DType::f16 || b.dtype == DType::bf16;
    PELTON_CHECK(options_.vector == 1 || options_.vector == 2 || options_.vector == 4 || options_.vector == 8,
                 "vectors of ", options_.vector);
    out.blocks = Dim::ceil_div(grid->extent, Dim(columns_ ? 32
                                                 : team_  ? block_ / team_
                                                          : block_ * options_.vector));

    if (options_.segments > 0) {
      PELTON_CHECK(!team_ && k_.sizes.size() <= 1 && !options_.wide_index, "segments of kernel ", k_.name);
      begin_segments(out.entry);
    } else {
      begin(out.entry);
    }
    block(k_.body);
    if (options_.sum) {
      line("k_sum = k_block_reduce(k_sum, k_op_sum());");
      line("if (threadIdx.x == 0) k_partial[blockIdx.x] = k_sum;");
    }
    text_ += "}\n";
    out.text = std::move(text_);
    return out;
  }

 private:
  void begin(const std::string& entry) {
    append(text_, cat("extern \"C\" __global__ void __launch_bounds__(", block_, ") ", entry, "("));
    for (size_t i = 0; i < k_.buffers.size(); ++i) {
      const Buffer& b = k_.buffers[i];
      append(text_,
             cat(i ? ", " : "", b.output ? "" : "const ", storage_type(b.dtype), "* __restrict__ ", b.name));
    }
    for (size_t i = 0; i < k_.sizes.size(); ++i)
      append(text_, cat(i || !k_.buffers.empty() ? ", " : "", index_type(), " n", i));
    text_ += ") {\n";
    line("k_begin();");
    for (size_t i = 0; i < k_.sizes.size(); ++i) line(cat("// n", i, " is ", k_.sizes[i]));
    if (options_.vector > 1)
      for (const Buffer& b : k_.buffers) {
        std::string type = cat(b.output ? "" : "const ", storage_type(b.dtype), "*");
        line(cat(b.name, " = (", type, ")__builtin_assume_aligned(", b.name, ", 16);"));
      }
  }

  // The block finds its segment by the numbers of their first blocks.
  void begin_segments(const std::string& entry) {
    std::vector<const Buffer*> buffers;
    for (const Buffer& b : k_.buffers)
      if (!b.output || !options_.sum) buffers.push_back(&b);
    const int n = options_.segments;
    append(text_, cat("struct k_table {\n  const void* at[", n * static_cast<int>(buffers.size()),
                      "];\n  int size[", n, "], first[", n + 1, "], count;\n};\n"));
    append(text_,
           cat("extern \"C\" __global__ void __launch_bounds__(", block_, ") ", entry,
               "(const __grid_constant__ k_table table", options_.sum ? ", float* k_partial" : "", ") {\n"));
    line("int k_low = 0, k_high = table.count;");
    line("while (k_high - k_low > 1) {");
    line("  const int middle = (k_low + k_high) >> 1;");
    line("  (table.first[middle] <= (int)blockIdx.x ? k_low : k_high) = middle;");
    line("}");
    line("const int k_first = table.first[k_low], k_block = blockIdx.x - k_first;");
    line("const int k_blocks = table.first[k_low + 1] - k_first;");
    for (size_t i = 0; i < k_.sizes.size(); ++i) line(cat("const int n", i, " = table.size[k_low];"));
    for (size_t i = 0; i < buffers.size(); ++i) {
      const std::string type = cat(buffers[i]->output ? "" : "const ", storage_type(buffers[i]->dtype), "*");
      line(cat(type, " __restrict__ const ", buffers[i]->name, " = (", type,
               ")__builtin_assume_aligned(table.at[k_low * ", buffers.size(), " + ", i, "], 16);"));
    }
    if (options_.sum) line("float k_sum = 0.0f;");
    line("k_begin();");
  }

  std::string_view index_type() const { return options_.wide_index ? "k_s64" : "int"; }
  static std::string identifier(const std::string& name) {
    std::string out = "k_";
    for (char c : name) out += is_word(c) && c != '.' ? c : '_';
    return out;
  }
  // Enough threads for the longest row of known size, at most 1024.
  int row_threads(const Statement& grid) const {
    int64_t most = 0;
    auto look = [&](auto&& self, const Block& b) -> void {
      for (const Statement& s : b) {
        if (s.kind != Kind::loop && s.kind != Kind::reduce) continue;
        most = std::max(most, s.extent.is_const() ? s.extent.value() : 256);
        self(self, s.body);
      }
    };
    look(look, grid.body);
    int threads = 32;
    const int each = std::max(4, options_.vector);  // elements a thread takes
    while (threads < 1024 && threads * each < most) threads *= 2;
    return threads;
  }

  void line(std::string_view s) { append(text_, cat(std::string(2 * depth_, ' '), s, "\n")); }
  std::string expression(const Dim& d) const {
    std::string s = with_prefix(d.substitute(names_).str(), "k_");
    // Bounds of sizes, not of scalars.
    for (std::string_view f : {"k_max(", "k_min(", "k_broadcast("})
      for (size_t at = 0; (at = s.find(f, at)) != s.npos; at += f.size()) s.insert(at + 2, "index_");
    return s;
  }
  std::string scalar(ScalarId id) const { return cat("v", id); }
  DType type(ScalarId id) const { return k_.scalar_types[id]; }

  void define(const Statement& s, std::string_view value) {
    line(cat(scalar_type(type(s.result)), " ", scalar(s.result), " = ", value, ";"));
  }
  std::string address(const Statement& s) const {
    const Buffer& b = k_.buffers[s.buffer];
    Dim at = 0;
    for (size_t d = 0; d < s.index.size(); ++d) at = at * b.dims[d] + s.index[d];
    return cat(b.name, "[", expression(at), "]");
  }
  std::string apply(const Statement& s) {
    const ir::ScalarDef& def = *ir::op(s.op).scalar;
    DType from = type(s.operands[0]);
    bool integer = !is_float(from) && from != DType::boolean;
    std::string code(integer && !def.int_code.empty() ? def.int_code : def.code);
    std::string out;
    bool calls = code.find('(') != code.npos;
    for (size_t i = 0; i < code.size(); ++i) {
      if (code[i] != '$') {
        out += code[i];
        continue;
      }
      auto operand = static_cast<size_t>(code[++i] - '0');
      append(out, cat(calls && from == DType::boolean ? "(k_s64)" : "", scalar(s.operands[operand])));
    }
    DType to = type(s.result);
    if (low_ && to == DType::f32) {
      if (s.op == "erf") {
        erf_of_.emplace(s.result, s.operands[0]);
        out = cat("fast_", out);
      }
      if (s.op == "add")
        for (const size_t i : {size_t{0}, size_t{1}})
          if (const auto erf = erf_of_.find(s.operands[i]);
              erf != erf_of_.end() && ones_.count(s.operands[1 - i]))
            return cat("k_fast_one_plus_erf(", scalar(erf->second), ")");
    }
    return def.yields_bool || s.op == "select" ? with_prefix(out, "k_") : to_type(to, with_prefix(out, "k_"));
  }

  // Inside a loop over whole vectors: the element of a vector that is read or written as one, if the accesses
  // of `s` lie side by side and start at a multiple of the width; else empty.
  std::string vector_element(const Statement& s) {
    if (vector_.width <= 1 || !s.mask.empty()) return "";
    const Buffer& b = k_.buffers[s.buffer];
    Dim at = 0;
    for (size_t d = 0; d < s.index.size(); ++d) at = at * b.dims[d] + s.index[d];
    Dim rest = at - Dim::symbol(vector_.variable);
    std::set<std::string> used;
    rest.collect_symbols(used);
    if (used.count(vector_.variable) || divisible_by(rest, vector_.width, {}) != Tri::yes) return "";
    std::string first = expression(rest + Dim::symbol(vector_.thread) * vector_.width);
    std::string vector = cat("k_vector<", storage_type(b.dtype), ", ", vector_.width, ">");
    std::string key = cat(b.name, "[", first, "]");
    auto [it, fresh] = vector_.names.emplace(key, cat("w", vectors_));
    if (fresh) {
      ++vectors_;
      std::string place = cat("*(", b.output ? "" : "const ", vector, "*)(", b.name, " + (", first, "))");
      if (b.output) {
        append(vector_.before, cat(vector, " ", it->second, ";\n"));
        append(vector_.after, cat(place, " = ", it->second, ";\n"));
      } else {
        append(vector_.before, cat("const ", vector, " ", it->second, " = ", place, ";\n"));
      }
    }
    return cat(it->second, ".v[u]");
  }

  void load(const Statement& s) {
    DType t = type(s.result);
    std::string value = vector_element(s);
    if (value.empty()) value = address(s);
    if (t == DType::f16 || t == DType::bf16)
      value = cat(t == DType::f16 ? "k_from_f16(" : "k_from_bf16(", value, ")");
    if (t == DType::boolean) value += " != 0";
    if (s.mask.empty()) return define(s, value);
    std::string condition;
    for (const Bound& b : s.mask) {
      std::string e = expression(b.value);
      append(condition,
             cat(condition.empty() ? "" : " && ", "0 <= ", e, " && ", e, " < ", expression(b.limit)));
    }
    define(s,
           cat(condition, " ? ", value, " : ", cat("(", scalar_type(t), ")", number(t, s.real, s.integer))));
  }

  void store(const Statement& s) {
    const Buffer& b = k_.buffers[s.buffer];
    std::string value = scalar(s.operands[0]);
    if (options_.sum) return line(cat("k_sum += ", value, ";"));
    if (b.dtype == DType::f16 || b.dtype == DType::bf16)
      value = cat(b.dtype == DType::f16 ? "k_to_f16(" : "k_to_bf16(", value, ")");
    else
      value = cat("(", storage_type(b.dtype), ")", value);
    if (std::string element = vector_element(s); !element.empty())
      return line(cat(element, " = ", value, ";"));
    // In a row's own scope every thread has the value; one writes it.
    line(cat(team_ && !in_lanes_ ? cat("if (", lane(), " == 0) ") : "", address(s), " = ", value, ";"));
  }

  // The position of a thread in its team, and of the team among all.
  std::string lane() const {
    return columns_ ? "(threadIdx.x >> 5)" : team_ == block_ ? "threadIdx.x" : "(threadIdx.x & 31)";
  }
  std::string first_team() const {
    if (team_ == block_) return "blockIdx.x";
    return cat("(", index_type(), ")blockIdx.x * ", block_ / team_, " + (threadIdx.x >> 5)");
  }
  // Of the grid, or of the segment.
  std::string_view own_block() const { return options_.segments > 0 ? "k_block" : "blockIdx.x"; }
  std::string_view blocks() const { return options_.segments > 0 ? "k_blocks" : "gridDim.x"; }
  std::string teams() const { return cat("(", index_type(), ")gridDim.x * ", block_ / team_); }

  // A loop whose iterations the team shares; where the length allows it each thread takes whole vectors.
  template <class F>
  void shared_loop(const Statement& s, F&& body) {
    PELTON_CHECK(team_ > 0, "kernel ", k_.name, " shares a loop outside the grid loop");
    bool outside = in_lanes_;
    in_lanes_ = true;
    int width = options_.vector;
    while (width > 1 && divisible_by(s.extent, width, {}) != Tri::yes) width /= 2;
    std::string t = width > 1 ? s.variable + "_t" : s.variable, length = expression(s.extent);
    if (width > 1) length = expression(Dim::floor_div(s.extent, width));
    if (columns_) line("#pragma unroll 8");
    line(cat("for (", index_type(), " ", t, " = ", lane(), "; ", t, " < ", length, "; ", t, " += ", team_,
             ") {"));
    ++depth_;
    if (width > 1)
      vector_body(s.variable, t, width, body);
    else
      plainly(body);
    --depth_;
    line("}");
    in_lanes_ = outside;
  }

  // A body whose accesses are single ones, whatever loop is around it.
  template <class F>
  void plainly(F&& body) {
    Vector around = std::exchange(vector_, {});
    body();
    vector_ = std::move(around);
  }

  // The body for each element of one vector, between the reads and the writes of whole vectors.
  template <class F>
  void vector_body(const std::string& variable, const std::string& thread, int width, F&& body) {
    Vector around = std::exchange(vector_, {variable, thread, width, {}, {}, {}});
    std::string outside = std::exchange(text_, {});
    line("#pragma unroll");
    line(cat("for (int u = 0; u < ", width, "; ++u) {"));
    ++depth_;
    line(cat("const ", index_type(), " ", variable, " = ", thread, " * ", width, " + u;"));
    line(cat("(void)", variable, ";"));  // an index of size 1 is 0 and uses none
    body();
    --depth_;
    line("}");
    text_ = cat(outside, vector_.before, text_, vector_.after);
    vector_ = std::move(around);
  }

  void reduce(const Statement& s) {
    std::string v = scalar(s.result);
    line(cat(scalar_type(type(s.result)), " ", v, " = ", neutral(s.op, type(s.result)), ";"));
    shared_loop(s, [&] {
      block(s.body);
      line(cat(v, " = k_op_", s.op, "()(", v, ", ", scalar(s.operands[0]), ");"));
    });
    std::string_view combine = columns_      ? "k_column_reduce("
                               : team_ == 32 ? "k_warp_reduce("
                                             : "k_block_reduce(";
    line(cat(v, " = ", to_type(type(s.result), cat(combine, v, ", k_op_", s.op, "())")), ";"));
  }

  // One loop over whole vectors, whose elements are independent, and one over what is left.
  void vector_loop(const Statement& s) {
    std::string index(index_type()), width = cat(options_.vector);
    std::string thread = cat("(", index, ")", own_block(), " * ", block_, " + threadIdx.x");
    std::string threads = cat("(", index, ")", blocks(), " * ", block_), whole = cat(s.variable, "_whole");
    line(cat("const ", index, " ", whole, " = (", expression(s.extent), ") / ", width, ";"));
    line(cat("for (", index, " t = ", thread, "; t < ", whole, "; t += ", threads, ") {"));
    in_lanes_ = true;
    ++depth_;
    vector_body(s.variable, "t", options_.vector, [&] { block(s.body); });
    --depth_;
    line("}");
    line(cat("for (", index, " ", s.variable, " = ", whole, " * ", width, " + ", thread, "; ", s.variable,
             " < ", expression(s.extent), "; ", s.variable, " += ", threads, ") {"));
    ++depth_;
    block(s.body);
    in_lanes_ = false;
    --depth_;
    line("}");
  }

  // All threads of the block stay together: those behind the last row repeat it.
  void column_loop(const Statement& s) {
    std::string index(index_type()), base = s.variable + "_base", extent = expression(s.extent);
    line(cat("for (", index, " ", base, " = (", index, ")blockIdx.x * 32; ", base, " < ", extent, "; ", base,
             " += (", index, ")gridDim.x * 32) {"));
    ++depth_;
    line(cat("const ", index, " ", s.variable, " = k_index_min(", base, " + (", index,
             ")(threadIdx.x & 31), ", extent, " - 1);"));
    plainly([&] { block(s.body); });
    --depth_;
    line("}");
  }

  void loop(const Statement& s) {
    if (s.loop == LoopKind::lanes) return shared_loop(s, [&] { block(s.body); });
    if (s.loop == LoopKind::grid && !team_ && options_.vector > 1) return vector_loop(s);
    if (s.loop == LoopKind::grid && columns_) return column_loop(s);
    std::string start = "0", step = "1";
    if (s.loop == LoopKind::grid) {
      start =
          team_ ? first_team() : cat("(", index_type(), ")", own_block(), " * ", block_, " + threadIdx.x");
      step = team_ ? teams() : cat("(", index_type(), ")", blocks(), " * ", block_);
    }
    line(cat("for (", index_type(), " ", s.variable, " = ", start, "; ", s.variable, " < ",
             expression(s.extent), "; ", s.variable, " += ", step, ") {"));
    ++depth_;
    bool outside = in_lanes_;
    in_lanes_ |= s.loop == LoopKind::grid && !team_;
    plainly([&] { block(s.body); });
    in_lanes_ = outside;
    --depth_;
    line("}");
  }

  void block(const Block& body) {
    for (const Statement& s : body) {
      switch (s.kind) {
        case Kind::constant:
          if (type(s.result) == DType::f32 && s.real == 1) ones_.insert(s.result);
          define(s, number(type(s.result), s.real, s.integer));
          break;
        case Kind::index:
          define(s, cat("(k_s64)(", expression(s.index[0]), ")"));
          break;
        case Kind::load:
          load(s);
          break;
        case Kind::apply:
          define(s, apply(s));
          break;
        case Kind::cast:
          define(s, cast_text(type(s.operands[0]), type(s.result), scalar(s.operands[0])));
          break;
        case Kind::reduce:
          reduce(s);
          break;
        case Kind::loop:
          loop(s);
          break;
        case Kind::store:
          store(s);
          break;
      }
    }
  }

  const Kernel& k_;
  CudaOptions options_;
  std::map<std::string, Dim, std::less<>> names_;
  std::string text_;
  size_t depth_ = 1;
  int block_ = 256;
  // Threads that work on one grid iteration together: a warp, a block, or (columns) one thread of each warp;
  // 0: each alone.
  int team_ = 0;
  bool columns_ = false;
  bool in_lanes_ = false;  // inside a loop whose iterations are shared out among threads
  // The loop over whole vectors around the present statement: element `variable` is `thread` * width + u.
  struct Vector {
    std::string variable, thread;
    int width = 1;
    std::map<std::string, std::string> names;  // of vectors, by buffer and place
    std::string before, after;
  };
  Vector vector_;
  int vectors_ = 0;
  bool low_ = false;                     // all results are stored in 16 bits
  std::map<ScalarId, ScalarId> erf_of_;  // scalars of f32 that are the error function of another
  std::set<ScalarId> ones_;              // constants of 1
};

}  // namespace

SegmentTable segment_table(int64_t buffers, int64_t segments) {
  SegmentTable t;
  t.buffers = buffers;
  t.sizes_at = 8 * buffers * segments;
  t.first_at = t.sizes_at + 4 * segments;
  t.count_at = t.first_at + 4 * (segments + 1);
  t.bytes = (t.count_at + 4 + 7) / 8 * 8;
  return t;
}

CudaKernel emit_cuda(const Kernel& kernel, const CudaOptions& options) {
  return Emitter(kernel, options).run();
}

}  // namespace pelton::codegen
