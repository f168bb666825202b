// SPDX-License-Identifier: Apache-2.0
// Reader and printer of the protobuf text form: comments, both separators, nested messages in {} or <>, lists
// in [], adjacent strings joined, escapes. Depth and size are bounded.
#include <charconv>
#include <cmath>
#include <limits>

#include "base/error.h"
#include "serve/core/config_node.h"

namespace pelton::serve {
namespace {

constexpr int kMaxDepth = 32;
constexpr size_t kMaxBytes = 16 << 20;

class Reader {
 public:
  Reader(std::string_view text, std::string_view place) : text_(text), place_(place) {}

  void read_fields(Node& node, char close, int depth) {
    if (depth > kMaxDepth) bad(cat("messages are nested deeper than ", kMaxDepth));
    for (;;) {
      skip_space();
      if (at_end()) {
        if (close) bad(cat("missing '", close, "'"));
        return;
      }
      if (close && peek() == close) {
        ++pos_;
        return;
      }
      read_field(node, depth);
      skip_space();
      if (!at_end() && (peek() == ',' || peek() == ';')) ++pos_;
    }
  }

 private:
  bool at_end() const { return pos_ >= text_.size(); }
  char peek() const { return text_[pos_]; }

  [[noreturn]] void bad(std::string what, std::string fix = {}) const {
    size_t line = 1, column = 1;
    for (size_t i = 0; i < pos_ && i < text_.size(); ++i) {
      ++column;
      if (text_[i] == '\n') ++line, column = 1;
    }
    fail(ErrorCode::bad_format, std::move(what), cat(place_, ":", line, ":", column), std::move(fix));
  }

  void skip_space() {
    while (!at_end()) {
      char c = peek();
      if (c == '#') {
        while (!at_end() && peek() != '\n') ++pos_;
      } else if (c == ' ' || c == '\t' || c == '\r' || c == '\n' || c == '\v' || c == '\f') {
        ++pos_;
      } else {
        return;
      }
    }
  }

  static bool is_word(char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
  }
  std::string_view word() {
    size_t begin = pos_;
    while (!at_end() && is_word(peek())) ++pos_;
    return text_.substr(begin, pos_ - begin);
  }

  void read_field(Node& node, int depth) {
    size_t begin = pos_;
    std::string_view name = word();
    if (name.empty()) bad(cat("expected a field name, found '", std::string(1, peek()), "'"));
    const Field* field = node.type().find(name);
    if (!field) {
      pos_ = begin;
      std::string near = nearest_field(node.type(), name);
      bad(cat("unknown field '", name, "' in ", node.type().name),
          near.empty() ? "" : cat("did you mean '", near, "'?"));
    }
    skip_space();
    const bool colon = !at_end() && peek() == ':';
    if (colon) ++pos_, skip_space();
    if (at_end()) bad(cat("field '", name, "' has no value"));
    if (!colon && field->kind != Kind::message) bad(cat("field '", name, "' needs ':' before its value"));
    if (peek() != '[') return read_value(node, *field, depth);
    if (field->card == Card::single) bad(cat("field '", name, "' takes one value, not a list"));
    ++pos_;
    skip_space();
    if (!at_end() && peek() == ']') {
      ++pos_;
      return;
    }
    for (;;) {
      skip_space();
      if (at_end()) bad("missing ']'");
      read_value(node, *field, depth);
      skip_space();
      if (at_end()) bad("missing ']'");
      char c = peek();
      ++pos_;
      if (c == ']') return;
      if (c != ',') --pos_, bad("expected ',' or ']'");
    }
  }

  void read_value(Node& node, const Field& field, int depth) {
    if (field.kind == Kind::message) {
      char open = peek();
      if (open != '{' && open != '<') bad(cat("field '", field.name, "' expects a message in braces"));
      ++pos_;
      Node* child = nullptr;
      at_place([&] { child = &node.add_message(field); });
      return read_fields(*child, open == '{' ? '}' : '>', depth + 1);
    }
    char c = peek();
    Scalar value;
    if (c == '"' || c == '\'') {
      if (field.kind != Kind::string && field.kind != Kind::bytes)
        bad(cat("field '", field.name, "' does not take a string"));
      value = strings();
    } else {
      value = number_or_word(field);
    }
    at_place([&] { node.add(field, std::move(value)); });
  }

  template <class F>
  void at_place(F&& f) {
    try {
      f();
    } catch (const Error& e) {
      bad(e.message(), e.fix());
    }
  }

  Scalar number_or_word(const Field& field) {
    size_t begin = pos_;
    bool negative = false;
    if (peek() == '-') negative = true, ++pos_, skip_space();
    size_t digits = pos_;
    while (!at_end() &&
           (is_word(peek()) || peek() == '.' ||
            ((peek() == '+' || peek() == '-') && pos_ > digits && (text_[pos_ - 1] | 32) == 'e')))
      ++pos_;
    std::string_view token = text_.substr(digits, pos_ - digits);
    auto refuse = [&](std::string what) {
      pos_ = begin;
      bad(std::move(what));
    };
    if (token.empty()) refuse(cat("field '", field.name, "' has no value"));
    if (field.kind == Kind::enumeration && !negative && !(token[0] >= '0' && token[0] <= '9'))
      return std::string(token);
    if (field.kind == Kind::boolean && !negative) {
      if (token == "true" || token == "True" || token == "t") return true;
      if (token == "false" || token == "False" || token == "f") return false;
    }
    if (field.kind == Kind::float32 || field.kind == Kind::float64) {
      if (token == "inf" || token == "infinity") return negative ? -HUGE_VAL : HUGE_VAL;
      if (token == "nan") return std::numeric_limits<double>::quiet_NaN();
      if (token.back() == 'f' && token.find_first_of("xX") == token.npos) token.remove_suffix(1);
      double v = 0;
      auto r = std::from_chars(token.data(), token.data() + token.size(), v);
      if (r.ec != std::errc() || r.ptr != token.data() + token.size())
        refuse(cat("'", token, "' is not a number"));
      return negative ? -v : v;
    }
    int base = 10;
    std::string_view body = token;
    if (token.size() > 2 && token[0] == '0' && (token[1] | 32) == 'x')
      base = 16, body.remove_prefix(2);
    else if (token.size() > 1 && token[0] == '0')
      base = 8, body.remove_prefix(1);
    uint64_t v = 0;
    auto r = std::from_chars(body.data(), body.data() + body.size(), v, base);
    if (r.ec == std::errc::result_out_of_range) refuse(cat("'", token, "' is out of range"));
    if (r.ec != std::errc() || r.ptr != body.data() + body.size())
      refuse(cat("'", token, "' is not a value for field '", field.name, "'"));
    if (!negative) return v <= INT64_MAX ? Scalar(static_cast<int64_t>(v)) : Scalar(v);
    if (v > uint64_t{1} << 63) refuse(cat("'-", token, "' is out of range"));
    return static_cast<int64_t>(0 - v);
  }

  std::string strings() {
    std::string out;
    for (;;) {
      char quote = peek();
      ++pos_;
      for (;;) {
        if (at_end() || peek() == '\n') bad("a string is not closed");
        char c = peek();
        ++pos_;
        if (c == quote) break;
        if (c == '\\')
          escape(out);
        else
          out.push_back(c);
      }
      skip_space();
      if (at_end() || (peek() != '"' && peek() != '\'')) return out;
    }
  }

  void escape(std::string& out) {
    if (at_end()) bad("a string is not closed");
    char c = peek();
    ++pos_;
    auto digits = [&](int base, size_t limit) {
      unsigned v = 0;
      size_t n = 0;
      for (; n < limit && !at_end(); ++n, ++pos_) {
        unsigned d;
        auto r = std::from_chars(text_.data() + pos_, text_.data() + pos_ + 1, d, base);
        if (r.ec != std::errc()) break;
        v = v * static_cast<unsigned>(base) + d;
      }
      if (n == 0) bad("a numeric escape has no digits");
      return v;
    };
    switch (c) {
      case 'n':
        out += '\n';
        return;
      case 'r':
        out += '\r';
        return;
      case 't':
        out += '\t';
        return;
      case 'a':
        out += '\a';
        return;
      case 'b':
        out += '\b';
        return;
      case 'f':
        out += '\f';
        return;
      case 'v':
        out += '\v';
        return;
      case '\\':
      case '\'':
      case '"':
      case '?':
        out += c;
        return;
      case 'x':
      case 'X':
        out += static_cast<char>(digits(16, 2));
        return;
      default:
        if (c < '0' || c > '7') bad(cat("unknown escape '\\", c, "'"));
        --pos_;
        unsigned v = digits(8, 3);
        if (v > 255) bad("an octal escape is above \\377");
        out += static_cast<char>(v);
    }
  }

  std::string_view text_, place_;
  size_t pos_ = 0;
};

void print_string(std::string& out, std::string_view s) {
  static constexpr char kOctal[] = "01234567";
  out += '"';
  for (unsigned char c : s) {
    if (c == '"' || c == '\\')
      out += '\\', out += static_cast<char>(c);
    else if (c == '\n')
      out += "\\n";
    else if (c < 32 || c >= 127)
      out += '\\', out += kOctal[c >> 6], out += kOctal[(c >> 3) & 7], out += kOctal[c & 7];
    else
      out += static_cast<char>(c);
  }
  out += '"';
}

void print(std::string& out, const Node& node, int depth) {
  for (const Item& i : node.items()) {
    out.append(static_cast<size_t>(depth) * 2, ' ');
    out += i.field->name;
    if (i.message) {
      out += " {\n";
      print(out, *i.message, depth + 1);
      out.append(static_cast<size_t>(depth) * 2, ' ');
      out += "}\n";
      continue;
    }
    out += ": ";
    if (i.field->kind == Kind::enumeration)
      out += i.field->enumeration->find(std::get<int64_t>(i.scalar))->name;
    else if (const auto* s = std::get_if<std::string>(&i.scalar))
      print_string(out, *s);
    else if (const auto* b = std::get_if<bool>(&i.scalar))
      append(out, *b);
    else if (const auto* d = std::get_if<double>(&i.scalar))
      append(out, *d);
    else if (const auto* u = std::get_if<uint64_t>(&i.scalar))
      append(out, *u);
    else
      append(out, std::get<int64_t>(i.scalar));
    out += '\n';
  }
}

}  // namespace

std::unique_ptr<Node> parse_config_text(std::string_view text, std::string_view place) {
  if (text.size() > kMaxBytes)
    fail(ErrorCode::limit, cat("configuration of ", text.size(), " bytes is above ", kMaxBytes),
         std::string(place));
  auto node = std::make_unique<Node>(model_config_type());
  Reader(text, place).read_fields(*node, 0, 0);
  return node;
}

std::string config_to_text(const Node& node) {
  std::string out;
  print(out, node, 0);
  return out;
}

}  // namespace pelton::serve
