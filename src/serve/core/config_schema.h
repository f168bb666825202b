// SPDX-License-Identifier: Apache-2.0
// The published structure of a model configuration as data: messages, fields, numbers, enumerations. The text
// and JSON readers, the printers and the wire form all derive from this one table.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

namespace pelton::serve {

enum class Kind : uint8_t {
  boolean,
  int32,
  int64,
  uint32,
  uint64,
  float32,
  float64,
  string,
  bytes,
  enumeration,
  message,
};
// A map is a repeated message with the fields key = 1 and value = 2.
enum class Card : uint8_t { single, repeated, map };

struct EnumValue {
  std::string_view name;
  int32_t number;
};
struct EnumType {
  std::string_view name;
  std::span<const EnumValue> values;
  const EnumValue* find(std::string_view name) const;
  const EnumValue* find(int64_t number) const;
};

struct MessageType;
struct Field {
  std::string_view name;
  uint32_t number;
  Kind kind;
  Card card;
  const MessageType* message = nullptr;
  const EnumType* enumeration = nullptr;
  std::string_view oneof{};  // fields of one group exclude each other
};
struct MessageType {
  std::string_view name;  // without the package: "ModelInstanceGroup.SecondaryDevice"
  std::span<const Field> fields;
  const Field* find(std::string_view name) const;
};

const MessageType& model_config_type();
const EnumType& data_type_enum();

}  // namespace pelton::serve
