// SPDX-License-Identifier: Apache-2.0
// The JSON form of a configuration (proto field names, as clients see it) and the wire form.
#include <bit>
#include <cmath>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "serve/core/config_node.h"

namespace pelton::serve {
namespace {

using Json = nlohmann::ordered_json;  // what is written
using Parsed = nlohmann::json;        // what clients send: ordered, n keys would take n^2 steps

Json scalar_to_json(const Field& f, const Scalar& v) {
  if (f.kind == Kind::enumeration) return std::string(f.enumeration->find(std::get<int64_t>(v))->name);
  return std::visit([](const auto& x) { return Json(x); }, v);
}

Json default_of(const Field& f) {
  switch (f.kind) {
    case Kind::boolean:
      return false;
    case Kind::float32:
    case Kind::float64:
      return 0.0;
    case Kind::string:
    case Kind::bytes:
      return "";
    case Kind::enumeration:
      return std::string(f.enumeration->values.front().name);
    default:
      return 0;
  }
}

Json to_json(const Node& node) {
  Json out = Json::object();
  for (const Field& f : node.type().fields) {
    if (f.card == Card::map) {
      Json& map = out[std::string(f.name)] = Json::object();
      for (const Node* entry : node.messages(f.name)) {
        Json key;
        for (const Item& i : entry->items())
          if (i.field->number == 1) key = scalar_to_json(*i.field, i.scalar);
        const Field& value = *entry->type().find("value");
        std::string name = key.is_string() ? key.get<std::string>() : key.is_null() ? "" : key.dump();
        Json& slot = map[name] = value.kind == Kind::message ? Json::object() : default_of(value);
        for (const Item& i : entry->items())
          if (i.field->number == 2)
            slot = i.message ? to_json(*i.message) : scalar_to_json(*i.field, i.scalar);
      }
    } else if (f.card == Card::repeated) {
      Json& list = out[std::string(f.name)] = Json::array();
      for (const Item& i : node.items())
        if (i.field == &f) list.push_back(i.message ? to_json(*i.message) : scalar_to_json(f, i.scalar));
    } else {
      bool set = false;
      for (const Item& i : node.items())
        if (i.field == &f)
          out[std::string(f.name)] = i.message ? to_json(*i.message) : scalar_to_json(f, i.scalar),
          set = true;
      if (!set && f.kind != Kind::message && f.oneof.empty()) out[std::string(f.name)] = default_of(f);
    }
  }
  return out;
}

void read_json(Node& node, const Parsed& json, const std::string& path, int depth);

Scalar scalar_from_json(const Field& f, const Parsed& v) {
  const bool wants_integer =
      f.kind == Kind::int32 || f.kind == Kind::int64 || f.kind == Kind::uint32 || f.kind == Kind::uint64;
  if (v.is_boolean()) return v.get<bool>();
  if (v.is_number_unsigned())
    return v.get<uint64_t>() <= INT64_MAX ? Scalar(v.get<int64_t>()) : Scalar(v.get<uint64_t>());
  if (v.is_number_integer()) return v.get<int64_t>();
  if (v.is_number_float()) {
    double d = v.get<double>();
    if (wants_integer && d == std::floor(d) && std::fabs(d) < 9e15) return static_cast<int64_t>(d);
    return d;
  }
  if (v.is_string()) {
    const std::string& s = v.get_ref<const std::string&>();
    if (wants_integer) {  // protobuf's JSON writes 64-bit integers as strings
      int64_t n = 0;
      auto r = std::from_chars(s.data(), s.data() + s.size(), n);
      if (r.ec == std::errc() && r.ptr == s.data() + s.size()) return n;
    }
    return s;
  }
  fail(ErrorCode::bad_format, cat("field '", f.name, "' expects a value, not ", v.type_name()));
}

void read_one(Node& node, const Field& f, const Parsed& v, const std::string& path, int depth) {
  if (f.kind == Kind::message)
    read_json(node.add_message(f), v, path, depth + 1);
  else
    node.add(f, scalar_from_json(f, v));
}

std::string camel_to_snake(std::string_view name) {
  std::string out;
  for (char c : name) {
    if (c >= 'A' && c <= 'Z')
      out += '_', out += static_cast<char>(c + 32);
    else
      out += c;
  }
  return out;
}

void read_json(Node& node, const Parsed& json, const std::string& path, int depth) {
  if (depth > 32) fail(ErrorCode::bad_format, "messages are nested deeper than 32", path);
  if (!json.is_object()) fail(ErrorCode::bad_format, cat("expected an object, not ", json.type_name()), path);
  for (const auto& [key, value] : json.items()) {
    const Field* f = node.type().find(key);
    if (!f) f = node.type().find(camel_to_snake(key));
    const std::string here = cat(path, ".", key);
    if (!f) {
      std::string near = nearest_field(node.type(), key);
      fail(ErrorCode::bad_format, cat("unknown field '", key, "' in ", node.type().name), path,
           near.empty() ? "" : cat("did you mean '", near, "'?"));
    }
    if (value.is_null()) continue;
    try {
      if (f->card == Card::map) {
        if (!value.is_object()) fail(ErrorCode::bad_format, cat("field '", f->name, "' expects an object"));
        for (const auto& [k, v] : value.items()) {
          Node& entry = node.add_message(*f);
          const Field& key_field = *f->message->find("key");
          entry.add(key_field, scalar_from_json(key_field, Parsed(k)));
          read_one(entry, *f->message->find("value"), v, here, depth + 1);
        }
      } else if (f->card == Card::repeated) {
        if (!value.is_array()) fail(ErrorCode::bad_format, cat("field '", f->name, "' expects a list"));
        for (const Parsed& v : value) read_one(node, *f, v, here, depth);
      } else {
        read_one(node, *f, value, here, depth);
      }
    } catch (const Error& e) {
      if (!e.where().empty()) throw;
      throw e.within(here);
    }
  }
}

void varint(std::string& out, uint64_t v) {
  for (; v >= 128; v >>= 7) out += static_cast<char>(v | 128);
  out += static_cast<char>(v);
}

}  // namespace

std::unique_ptr<Node> parse_config_json(std::string_view text, std::string_view place) {
  Parsed json;
  try {
    json = Parsed::parse(text);
  } catch (const Parsed::parse_error& e) {
    fail(ErrorCode::bad_format, cat("the configuration is not JSON: the error is at byte ", e.byte),
         std::string(place));
  }
  auto node = std::make_unique<Node>(model_config_type());
  read_json(*node, json, std::string(place), 0);
  return node;
}

std::string config_to_json(const Node& node) {
  return to_json(node).dump(-1, ' ', false, Json::error_handler_t::replace);
}

std::string config_to_wire(const Node& node) {
  std::string out;
  for (const Item& i : node.items()) {
    auto tag = [&](unsigned wire_type) { varint(out, uint64_t{i.field->number} << 3 | wire_type); };
    auto block = [&](const std::string& bytes) {
      tag(2);
      varint(out, bytes.size());
      out += bytes;
    };
    if (i.message) {
      block(config_to_wire(*i.message));
    } else if (const auto* s = std::get_if<std::string>(&i.scalar)) {
      block(*s);
    } else if (const auto* d = std::get_if<double>(&i.scalar)) {
      const bool wide = i.field->kind == Kind::float64;
      tag(wide ? 1 : 5);
      uint64_t bits = wide ? std::bit_cast<uint64_t>(*d) : std::bit_cast<uint32_t>(static_cast<float>(*d));
      for (int b = 0; b < (wide ? 8 : 4); ++b) out += static_cast<char>(bits >> (8 * b));
    } else {
      tag(0);
      if (const auto* b = std::get_if<bool>(&i.scalar))
        varint(out, *b);
      else if (const auto* u = std::get_if<uint64_t>(&i.scalar))
        varint(out, *u);
      else
        varint(out, static_cast<uint64_t>(std::get<int64_t>(i.scalar)));
    }
  }
  return out;
}

}  // namespace pelton::serve
