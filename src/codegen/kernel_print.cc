// SPDX-License-Identifier: Apache-2.0
#include <map>

#include "codegen/kernel.h"

namespace pelton::codegen {

std::string_view name(LoopKind kind) {
  switch (kind) {
    case LoopKind::grid:
      return "grid";
    case LoopKind::lanes:
      return "lanes";
    case LoopKind::serial:
      break;
  }
  return "serial";
}

namespace {

class Printer {
 public:
  explicit Printer(const Kernel& kernel) : k_(kernel) {}

  std::string run() {
    append(out_, cat("kernel \"", k_.name, "\"("));
    for (size_t i = 0; i < k_.sizes.size(); ++i) append(out_, cat(i ? ", " : "", k_.sizes[i]));
    out_ += ") {\n";
    for (const Buffer& b : k_.buffers)
      append(out_, cat(b.output ? "  out " : "  in ", b.name, ": ", pelton::name(b.dtype), "[", dims(b.dims),
                       "]\n"));
    block(k_.body, 1);
    return out_ + "}\n";
  }

 private:
  static std::string dims(const Shape& shape) {
    std::string s;
    for (size_t i = 0; i < shape.size(); ++i) append(s, cat(i ? ", " : "", shape[i].str()));
    return s;
  }
  // Scalars are numbered in the order of the text.
  std::string scalar(ScalarId id) const {
    auto it = labels_.find(id);
    return it == labels_.end() ? cat("%undefined", id) : cat("%", it->second);
  }
  std::string result(const Statement& s) {
    labels_.emplace(s.result, labels_.size());
    return cat(scalar(s.result), ": ", pelton::name(k_.scalar_types[s.result]), " = ");
  }
  static std::string number(const Statement& s, DType t) {
    return is_float(t) ? cat(s.real) : cat(s.integer);
  }

  void block(const Block& body, size_t depth) {
    for (const Statement& s : body) statement(s, depth);
  }
  void statement(const Statement& s, size_t depth) {
    using Kind = Statement::Kind;
    out_ += std::string(2 * depth, ' ');
    switch (s.kind) {
      case Kind::constant:
        append(out_, cat(result(s), "constant ", number(s, k_.scalar_types[s.result])));
        break;
      case Kind::index:
        append(out_, cat(result(s), "index ", s.index[0].str()));
        break;
      case Kind::load:
        append(out_, cat(result(s), "load ", k_.buffers[s.buffer].name, "[", dims(s.index), "]"));
        for (size_t i = 0; i < s.mask.size(); ++i)
          append(out_,
                 cat(i ? " and " : " if ", "0 <= ", s.mask[i].value.str(), " < ", s.mask[i].limit.str()));
        if (!s.mask.empty()) append(out_, cat(" else ", number(s, k_.scalar_types[s.result])));
        break;
      case Kind::apply:
      case Kind::cast:
        append(out_, cat(result(s), s.kind == Kind::cast ? "cast" : s.op));
        for (ScalarId o : s.operands) append(out_, cat(" ", scalar(o)));
        break;
      case Kind::reduce:
        append(out_, cat(result(s), "reduce ", s.op, " ", s.variable, " < ", s.extent.str(), " {\n"));
        block(s.body, depth + 1);
        append(out_, cat(std::string(2 * depth + 2, ' '), "yield ", scalar(s.operands[0]), "\n",
                         std::string(2 * depth, ' '), "}"));
        break;
      case Kind::loop:
        append(out_, cat("loop ", s.variable, " < ", s.extent.str(), " ", name(s.loop), " {\n"));
        block(s.body, depth + 1);
        out_ += std::string(2 * depth, ' ') + "}";
        break;
      case Kind::store:
        append(out_,
               cat("store ", k_.buffers[s.buffer].name, "[", dims(s.index), "] = ", scalar(s.operands[0])));
        break;
    }
    out_ += "\n";
  }

  const Kernel& k_;
  std::string out_;
  std::map<ScalarId, size_t> labels_;
};

}  // namespace

std::string print(const Kernel& kernel) {
  return Printer(kernel).run();
}

}  // namespace pelton::codegen
