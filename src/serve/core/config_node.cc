// SPDX-License-Identifier: Apache-2.0
#include "serve/core/config_node.h"

#include <algorithm>
#include <limits>

#include "base/error.h"
#include "base/nearest.h"

namespace pelton::serve {
namespace {

bool integer_fits(Kind kind, const Scalar& v) {
  if (const auto* s = std::get_if<int64_t>(&v)) {
    switch (kind) {
      case Kind::int32:
        return *s >= std::numeric_limits<int32_t>::min() && *s <= std::numeric_limits<int32_t>::max();
      case Kind::uint32:
        return *s >= 0 && *s <= std::numeric_limits<uint32_t>::max();
      case Kind::uint64:
        return *s >= 0;
      default:
        return true;
    }
  }
  uint64_t u = std::get<uint64_t>(v);
  switch (kind) {
    case Kind::int32:
      return u <= static_cast<uint64_t>(std::numeric_limits<int32_t>::max());
    case Kind::uint32:
      return u <= std::numeric_limits<uint32_t>::max();
    case Kind::int64:
      return u <= static_cast<uint64_t>(std::numeric_limits<int64_t>::max());
    default:
      return true;
  }
}

// The value in the one representation its kind has, or a bad_format error that names the field.
Scalar normalise(const Field& f, Scalar v) {
  auto bad = [&](std::string_view expected) {
    fail(ErrorCode::bad_format, cat("field '", f.name, "' expects ", expected));
  };
  const bool is_integer = std::holds_alternative<int64_t>(v) || std::holds_alternative<uint64_t>(v);
  switch (f.kind) {
    case Kind::boolean:
      if (is_integer) {
        int64_t n = std::holds_alternative<int64_t>(v) ? std::get<int64_t>(v) : 2;
        if (n != 0 && n != 1) bad("true or false");
        return n == 1;
      }
      if (!std::holds_alternative<bool>(v)) bad("true or false");
      return v;
    case Kind::int32:
    case Kind::int64:
    case Kind::uint32:
    case Kind::uint64: {
      if (!is_integer) bad("an integer");
      if (!integer_fits(f.kind, v))
        bad(f.kind == Kind::int32 || f.kind == Kind::uint32 ? "an integer of 32 bits in range"
                                                            : "an integer of 64 bits in range");
      const bool is_unsigned = f.kind == Kind::uint32 || f.kind == Kind::uint64;
      if (is_unsigned && std::holds_alternative<int64_t>(v))
        return static_cast<uint64_t>(std::get<int64_t>(v));
      if (!is_unsigned && std::holds_alternative<uint64_t>(v))
        return static_cast<int64_t>(std::get<uint64_t>(v));
      return v;
    }
    case Kind::float32:
    case Kind::float64:
      if (std::holds_alternative<int64_t>(v)) return static_cast<double>(std::get<int64_t>(v));
      if (std::holds_alternative<uint64_t>(v)) return static_cast<double>(std::get<uint64_t>(v));
      if (!std::holds_alternative<double>(v)) bad("a number");
      return v;
    case Kind::string:
    case Kind::bytes:
      if (!std::holds_alternative<std::string>(v)) bad("a string");
      return v;
    case Kind::enumeration: {
      const EnumValue* e = nullptr;
      if (std::holds_alternative<std::string>(v)) e = f.enumeration->find(std::get<std::string>(v));
      if (std::holds_alternative<int64_t>(v)) e = f.enumeration->find(std::get<int64_t>(v));
      if (!e) {
        std::string names;
        for (const EnumValue& x : f.enumeration->values) names += cat(names.empty() ? "" : ", ", x.name);
        bad(cat("one of ", names,
                std::holds_alternative<std::string>(v) ? cat(", not '", std::get<std::string>(v), "'") : ""));
      }
      return static_cast<int64_t>(e->number);
    }
    case Kind::message:
      bad("a message in braces");
  }
  return v;
}

}  // namespace

const Item* Node::find(std::string_view name) const {
  for (const Item& i : items_)
    if (i.field->name == name) return &i;
  PELTON_CHECK(type_->find(name), "no field ", name, " in ", type_->name);
  return nullptr;
}
const Node* Node::message(std::string_view f) const {
  const Item* i = find(f);
  return i ? i->message.get() : nullptr;
}
std::vector<const Node*> Node::messages(std::string_view f) const {
  std::vector<const Node*> out;
  for (const Item& i : items_)
    if (i.field->name == f) out.push_back(i.message.get());
  return out;
}
std::string Node::string(std::string_view f) const {
  const Item* i = find(f);
  return i ? std::get<std::string>(i->scalar) : std::string();
}
int64_t Node::integer(std::string_view f) const {
  const Item* i = find(f);
  if (!i) return 0;
  if (const auto* u = std::get_if<uint64_t>(&i->scalar))  // the typed view never needs more than 63 bits
    return static_cast<int64_t>(std::min<uint64_t>(*u, std::numeric_limits<int64_t>::max()));
  return std::get<int64_t>(i->scalar);
}
bool Node::boolean(std::string_view f) const {
  const Item* i = find(f);
  return i && std::get<bool>(i->scalar);
}
double Node::real(std::string_view f) const {
  const Item* i = find(f);
  return i ? std::get<double>(i->scalar) : 0.0;
}
std::string Node::enum_name(std::string_view f) const {
  const Item* i = find(f);
  const Field* field = type_->find(f);
  return std::string(field->enumeration->find(i ? std::get<int64_t>(i->scalar) : 0)->name);
}
std::vector<int64_t> Node::integers(std::string_view f) const {
  std::vector<int64_t> out;
  for (const Item& i : items_)
    if (i.field->name == f)
      out.push_back(std::holds_alternative<uint64_t>(i.scalar)
                        ? static_cast<int64_t>(std::get<uint64_t>(i.scalar))
                        : std::get<int64_t>(i.scalar));
  return out;
}
std::vector<double> Node::reals(std::string_view f) const {
  std::vector<double> out;
  for (const Item& i : items_)
    if (i.field->name == f) out.push_back(std::get<double>(i.scalar));
  return out;
}
std::vector<bool> Node::booleans(std::string_view f) const {
  std::vector<bool> out;
  for (const Item& i : items_)
    if (i.field->name == f) out.push_back(std::get<bool>(i.scalar));
  return out;
}
std::vector<std::string> Node::strings(std::string_view f) const {
  std::vector<std::string> out;
  for (const Item& i : items_)
    if (i.field->name == f) out.push_back(std::get<std::string>(i.scalar));
  return out;
}

void Node::check_free(const Field& f) const {
  if (f.card != Card::single) return;
  for (const Item& i : items_) {
    if (i.field == &f) fail(ErrorCode::bad_format, cat("field '", f.name, "' is given twice"));
    if (!f.oneof.empty() && i.field->oneof == f.oneof)
      fail(ErrorCode::bad_format, cat("fields '", i.field->name, "' and '", f.name, "' exclude each other"));
  }
}
void Node::add(const Field& f, Scalar value) {
  check_free(f);
  items_.push_back({&f, normalise(f, std::move(value)), nullptr});
}
Node& Node::add_message(const Field& f) {
  check_free(f);
  if (f.kind != Kind::message) fail(ErrorCode::bad_format, cat("field '", f.name, "' is not a message"));
  items_.push_back({&f, {}, std::make_unique<Node>(*f.message)});
  return *items_.back().message;
}
void Node::set(std::string_view name, Scalar value) {
  erase(name);
  add(*type_->find(name), std::move(value));
}
Node& Node::message_for(std::string_view name) {
  for (Item& i : items_)
    if (i.field->name == name) return *i.message;
  return add_message(*type_->find(name));
}
void Node::erase(std::string_view name) {
  PELTON_CHECK(type_->find(name), "no field ", name, " in ", type_->name);
  std::erase_if(items_, [&](const Item& i) { return i.field->name == name; });
}
std::unique_ptr<Node> Node::clone() const {
  auto out = std::make_unique<Node>(*type_);
  for (const Item& i : items_)
    out->items_.push_back({i.field, i.scalar, i.message ? i.message->clone() : nullptr});
  return out;
}

std::string nearest_field(const MessageType& type, std::string_view name) {
  std::string best;
  size_t distance = name.size() / 2 + 1;
  for (const Field& f : type.fields) {
    const size_t d = f.name.starts_with(name) && name.size() > 2 ? 1 : edit_distance(name, f.name);
    if (d < distance) distance = d, best = f.name;
  }
  return best;
}

}  // namespace pelton::serve
