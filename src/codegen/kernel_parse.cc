// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <map>

#include "codegen/kernel.h"
#include "ir/op.h"
#include "tensor/dim_scan.h"

namespace pelton::codegen {
namespace {

// One statement a line, as print() writes it.
class Parser {
 public:
  explicit Parser(std::string_view text) {
    while (!text.empty()) {
      size_t end = std::min(text.find('\n'), text.size());
      lines_.emplace_back(text.substr(0, end));
      text.remove_prefix(std::min(end + 1, text.size()));
    }
  }

  Kernel run() {
    next_line();
    expect("kernel \"");
    k_.name = until('"');
    expect("\"(");
    while (!take(")")) {
      if (!k_.sizes.empty()) expect(",");
      k_.sizes.push_back(word());
    }
    expect("{");
    end_of_line();
    for (;;) {
      next_line();
      bool output = take("out ");
      if (!output && !take("in ")) break;
      Buffer b;
      b.output = output;
      b.name = word();
      expect(":");
      b.dtype = dtype();
      expect("[");
      b.dims = dims();
      end_of_line();
      k_.buffers.push_back(std::move(b));
    }
    --line_;
    k_.body = block(0, nullptr);
    return std::move(k_);
  }

 private:
  using Kind = Statement::Kind;

  [[noreturn]] void bad(std::string_view expected) const {
    std::string near(at_ < text_.size() ? text_.substr(at_, 24) : std::string_view());
    fail(ErrorCode::bad_format, cat("kernel text: ", expected, near.empty() ? "" : cat(" near '", near, "'")),
         cat("line ", line_));
  }
  void next_line() {
    do {
      if (line_ >= lines_.size()) {
        text_ = {};
        at_ = 0;
        bad("expected '}', found the end");
      }
      text_ = lines_[line_++];
      at_ = 0;
      skip();
    } while (at_ == text_.size());
  }
  void skip() {
    while (at_ < text_.size() && text_[at_] == ' ') ++at_;
  }
  bool take(std::string_view s) {
    skip();
    if (text_.substr(at_, s.size()) != s) return false;
    at_ += s.size();
    return true;
  }
  void expect(std::string_view s) {
    if (!take(s)) bad(cat("expected '", s, "'"));
  }
  void end_of_line() {
    skip();
    if (at_ != text_.size()) bad("expected the end of the line");
  }
  std::string until(char c) {
    size_t end = text_.find(c, at_);
    if (end == text_.npos) bad(cat("expected '", c, "'"));
    std::string out(text_.substr(at_, end - at_));
    at_ = end;
    return out;
  }
  std::string word() {
    skip();
    size_t end = at_;
    while (end < text_.size() &&
           (std::isalnum(static_cast<unsigned char>(text_[end])) || text_[end] == '_' || text_[end] == '.'))
      ++end;
    if (end == at_) bad("expected a word");
    std::string out(text_.substr(at_, end - at_));
    at_ = end;
    return out;
  }
  DType dtype() {
    std::string w = word();
    auto t = dtype_from_name(w);
    if (!t) bad(cat("no type '", w, "'"));
    return *t;
  }
  // An index expression up to one of `ends` outside parentheses.
  Dim dim(std::string_view ends) {
    skip();
    return scan_dim(text_, at_, ends);
  }
  Shape dims() {
    Shape out;
    while (!take("]")) {
      if (!out.empty()) expect(",");
      out.push_back(dim(",]"));
    }
    return out;
  }
  ScalarId scalar() {
    expect("%");
    std::string w = word();
    auto it = scalars_.find(w);
    if (it == scalars_.end()) bad(cat("scalar %", w, " is not defined before its use"));
    return it->second;
  }
  uint32_t buffer() {
    std::string w = word();
    for (size_t i = 0; i < k_.buffers.size(); ++i)
      if (k_.buffers[i].name == w) return static_cast<uint32_t>(i);
    bad(cat("no buffer '", w, "'"));
  }
  void number(Statement& s, DType t) {
    skip();
    size_t end = std::min(text_.find(' ', at_), text_.size());
    std::string n(text_.substr(at_, end - at_));
    char* stop = nullptr;
    if (is_float(t))
      s.real = std::strtod(n.c_str(), &stop);
    else
      s.integer = std::strtoll(n.c_str(), &stop, 10);
    if (n.empty() || *stop) bad("expected a number");
    at_ = end;
  }

  // Statements up to '}'; a reduction's block ends with a yield, stored in `yielded`.
  Block block(int depth, ScalarId* yielded) {
    if (depth > 32) bad("nested deeper than 32");
    Block out;
    for (;;) {
      next_line();
      if (take("}")) {
        end_of_line();
        if (yielded) bad("a reduction without yield");
        return out;
      }
      if (yielded && take("yield ")) {
        *yielded = scalar();
        end_of_line();
        next_line();
        expect("}");
        end_of_line();
        return out;
      }
      out.push_back(statement(depth));
    }
  }

  Statement statement(int depth) {
    Statement s;
    if (take("loop ")) {
      s.kind = Kind::loop;
      s.variable = word();
      expect("<");
      s.extent = extent({" grid {", " lanes {", " serial {"});
      std::string kind = word();
      s.loop = kind == "grid" ? LoopKind::grid : kind == "lanes" ? LoopKind::lanes : LoopKind::serial;
      expect("{");
      s.body = block(depth + 1, nullptr);
      return s;
    }
    if (take("store ")) {
      s.kind = Kind::store;
      s.buffer = buffer();
      expect("[");
      s.index = dims();
      expect("=");
      s.operands = {scalar()};
      end_of_line();
      return s;
    }
    expect("%");
    std::string label = word();
    expect(":");
    DType t = dtype();
    expect("=");
    std::string what = word();
    if (what == "constant") {
      number(s, t);
    } else if (what == "index") {
      s.kind = Kind::index;
      s.index = {dim("")};
    } else if (what == "load") {
      s.kind = Kind::load;
      s.buffer = buffer();
      expect("[");
      s.index = dims();
      for (bool first = true; take(first ? "if" : "and"); first = false) {
        expect("0 <=");
        Bound b;
        b.value = dim("<");
        expect("<");
        b.limit = extent({" and ", " else "});
        s.mask.push_back(std::move(b));
      }
      if (!s.mask.empty()) {
        expect("else");
        number(s, t);
      }
    } else if (what == "reduce") {
      s.kind = Kind::reduce;
      s.op = word();
      s.variable = word();
      expect("<");
      s.extent = dim("{");
      expect("{");
      s.operands.resize(1);
      s.body = block(depth + 1, s.operands.data());
    } else {
      s.kind = what == "cast" ? Kind::cast : Kind::apply;
      if (s.kind == Kind::apply) {
        s.op = what;
        (void)ir::op(what);  // refuses unknown names with the nearest one
      }
      while (take("%")) {
        --at_;
        s.operands.push_back(scalar());
      }
    }
    if (s.kind != Kind::reduce) end_of_line();
    s.result = k_.add_scalar(t);
    if (!scalars_.emplace(label, s.result).second) bad(cat("scalar %", label, " is defined twice"));
    return s;
  }
  // An expression that ends before the first of `ends`.
  Dim extent(std::initializer_list<std::string_view> ends) {
    skip();
    size_t end = text_.npos;
    for (std::string_view e : ends) end = std::min(end, text_.find(e, at_));
    if (end == text_.npos) bad("an expression without end");
    Dim d = Dim::parse(text_.substr(at_, end - at_));
    at_ = end;
    return d;
  }

  std::vector<std::string_view> lines_;
  std::string_view text_;
  size_t line_ = 0, at_ = 0;
  Kernel k_;
  std::map<std::string, ScalarId> scalars_;
};

}  // namespace

Kernel parse_kernel(std::string_view text) {
  Kernel k = Parser(text).run();
  verify(k);
  return k;
}

}  // namespace pelton::codegen
