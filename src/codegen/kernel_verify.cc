// SPDX-License-Identifier: Apache-2.0
#include <set>

#include "codegen/kernel.h"
#include "ir/op.h"

namespace pelton::codegen {
namespace {

class Verifier {
 public:
  explicit Verifier(const Kernel& kernel) : k_(kernel) {
    for (const std::string& s : k_.sizes) variables_.insert(s);
  }
  void run() {
    std::set<std::string> names;
    for (const Buffer& b : k_.buffers) {
      if (!names.insert(b.name).second) bad(cat("two buffers named ", b.name));
      for (const Dim& d : b.dims) known(d);
    }
    block(k_.body);
  }

 private:
  using Kind = Statement::Kind;

  [[noreturn]] void bad(std::string text) const {
    fail(ErrorCode::internal, cat("invalid kernel: ", text), cat("kernel ", k_.name));
  }
  void known(const Dim& d) const {
    std::set<std::string> used;
    d.collect_symbols(used);
    for (const std::string& s : used)
      if (!variables_.count(s)) bad(cat("expression ", d.str(), " uses ", s, ", which is not defined there"));
  }
  DType type(ScalarId id) const {
    if (!defined_.count(id)) bad(cat("scalar ", id, " is used before it is defined"));
    return k_.scalar_types[id];
  }
  void define(const Statement& s) {
    if (s.result >= k_.scalar_types.size() || !defined_.insert(s.result).second)
      bad(cat("scalar ", s.result, " is defined twice"));
  }
  void access(const Statement& s, bool output) {
    if (s.buffer >= k_.buffers.size()) bad("access to a buffer that does not exist");
    const Buffer& b = k_.buffers[s.buffer];
    if (b.output != output) bad(cat(output ? "store to input " : "load from output ", b.name));
    if (s.index.size() != b.dims.size())
      bad(cat(s.index.size(), " indices for buffer ", b.name, " of rank ", b.dims.size()));
    for (const Dim& d : s.index) known(d);
    for (const Bound& m : s.mask) {
      known(m.value);
      known(m.limit);
    }
  }

  // Variables and scalars of a block end with it.
  void nested(const Statement& s) {
    known(s.extent);
    if (!variables_.insert(s.variable).second) bad(cat("variable ", s.variable, " is defined twice"));
    std::set<ScalarId> outer = defined_;
    block(s.body);
    if (s.kind == Kind::reduce && type(s.operands[0]) != k_.scalar_types[s.result])
      bad(cat("reduction of ", pelton::name(type(s.operands[0])), " yields ",
              pelton::name(k_.scalar_types[s.result])));
    defined_ = std::move(outer);
    variables_.erase(s.variable);
  }

  void block(const Block& body) {
    for (const Statement& s : body) {
      switch (s.kind) {
        case Kind::constant:
          break;
        case Kind::index:
          if (s.index.size() != 1) bad("index of several expressions");
          known(s.index[0]);
          break;
        case Kind::load:
          access(s, false);
          if (k_.scalar_types[s.result] != k_.buffers[s.buffer].dtype)
            bad(cat("load of ", k_.buffers[s.buffer].name, " as ", pelton::name(k_.scalar_types[s.result])));
          break;
        case Kind::apply: {
          const ir::OpDef& op = ir::op(s.op);
          if (!op.scalar) bad(cat(s.op, " is not a pointwise op"));
          if (static_cast<int>(s.operands.size()) != op.min_inputs)
            bad(cat(s.op, " of ", s.operands.size(), " operands"));
          for (ScalarId o : s.operands) (void)type(o);
          if (op.scalar->yields_bool && k_.scalar_types[s.result] != DType::boolean)
            bad(cat(s.op, " yields bool, not ", pelton::name(k_.scalar_types[s.result])));
          break;
        }
        case Kind::cast:
          if (s.operands.size() != 1) bad("cast of several scalars");
          (void)type(s.operands[0]);
          break;
        case Kind::reduce:
          if (s.op != "sum" && s.op != "prod" && s.op != "max" && s.op != "min")
            bad(cat("no reduction ", s.op));
          if (s.operands.size() != 1) bad("a reduction without value");
          nested(s);
          break;
        case Kind::loop:
          nested(s);
          continue;
        case Kind::store:
          access(s, true);
          if (s.operands.size() != 1 || type(s.operands[0]) != k_.buffers[s.buffer].dtype)
            bad(cat("store to ", k_.buffers[s.buffer].name, " of another type"));
          continue;
      }
      define(s);
    }
  }

  const Kernel& k_;
  std::set<std::string> variables_;
  std::set<ScalarId> defined_;
};

}  // namespace

void verify(const Kernel& kernel) {
  Verifier(kernel).run();
}

}  // namespace pelton::codegen
