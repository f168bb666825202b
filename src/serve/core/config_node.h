// SPDX-License-Identifier: Apache-2.0
// A model configuration as a tree over the schema, with its four outer forms: protobuf text (config.pbtxt),
// JSON (the REST form), wire bytes (for gRPC), and lookups for the typed view in model_config.h.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "serve/core/config_schema.h"

namespace pelton::serve {

class Node;
// Signed kinds and enumerations hold int64_t, unsigned uint64_t, floats double, bytes and strings
// std::string.
using Scalar = std::variant<bool, int64_t, uint64_t, double, std::string>;

struct Item {
  const Field* field = nullptr;
  Scalar scalar;
  std::unique_ptr<Node> message;  // set exactly when field->kind is Kind::message
};

class Node {
 public:
  explicit Node(const MessageType& type) : type_(&type) {}
  const MessageType& type() const { return *type_; }
  const std::vector<Item>& items() const { return items_; }

  bool has(std::string_view field) const { return find(field) != nullptr; }
  const Node* message(std::string_view field) const;                // nullptr if absent
  std::vector<const Node*> messages(std::string_view field) const;  // repeated and map
  std::string string(std::string_view field) const;                 // defaults of proto3 if absent
  int64_t integer(std::string_view field) const;                    // any integer kind or enumeration
  bool boolean(std::string_view field) const;
  double real(std::string_view field) const;
  std::string enum_name(std::string_view field) const;
  std::vector<int64_t> integers(std::string_view field) const;
  std::vector<double> reals(std::string_view field) const;
  std::vector<bool> booleans(std::string_view field) const;
  std::vector<std::string> strings(std::string_view field) const;

  // Setters check kind and range (bad_format). A second value of a single field, or of another field of its
  // oneof group, is refused.
  void add(const Field& field, Scalar value);
  Node& add_message(const Field& field);
  void set(std::string_view field, Scalar value);  // replaces
  Node& message_for(std::string_view field);       // existing single message, or a new one
  void erase(std::string_view field);
  std::unique_ptr<Node> clone() const;

 private:
  const Item* find(std::string_view field) const;
  void check_free(const Field& field) const;

  const MessageType* type_;
  std::vector<Item> items_;
};

// `place` names the text in messages ("resnet/config.pbtxt"). bad_format carries line and column.
std::unique_ptr<Node> parse_config_text(std::string_view text, std::string_view place);
std::unique_ptr<Node> parse_config_json(std::string_view json, std::string_view place);
// Every field, defaults included, 64-bit integers as JSON numbers, enumerations by name.
std::string config_to_json(const Node& node);
std::string config_to_text(const Node& node);
std::string config_to_wire(const Node& node);
// The name in `type` nearest to `name` for "did you mean", or empty.
std::string nearest_field(const MessageType& type, std::string_view name);

}  // namespace pelton::serve
