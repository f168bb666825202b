// SPDX-License-Identifier: Apache-2.0
// Protocol-buffer wire format, read in place: a Reader walks one message of a mapped file and hands out views
// of its bytes. Nothing is copied, nesting is bounded, every length is checked against what is left, and an
// error names message, field and byte offset.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"

namespace pelton::wire {

enum class Kind : uint8_t { int32, int64, uint64, enumeration, f32, f64, string, bytes, message };

struct FieldSpec {
  std::string_view message;  // the message that owns the field
  uint32_t number;
  std::string_view name;
  Kind kind;
  bool repeated;
  std::string_view type;  // name of the message type when kind == message
};

// A message's own fields, taken from a table sorted by message.
struct MessageSpec {
  std::string_view name;
  const FieldSpec* fields = nullptr;
  size_t count = 0;
};
// The run of `table` rows whose message is `name`; there must be one.
MessageSpec find_message(const FieldSpec* table, size_t count, std::string_view name);

// A stretch of a file: the bytes of one message, and where the file begins so that offsets can be told.
struct Span {
  std::string_view bytes;
  const char* origin = nullptr;
  int depth = 0;  // messages around this one
  size_t offset() const { return static_cast<size_t>(bytes.data() - origin); }
};
inline Span whole(std::string_view file) {
  return {file, file.data(), 0};
}

inline constexpr int kMaxDepth = 100;

class Reader {
 public:
  Reader(Span message, const MessageSpec& spec);
  // The number of the next field of the table, 0 at the end. Fields that the table does not have are skipped.
  uint32_t next();

  // The value of the field that next() found; the kind must fit the table.
  int64_t integer() const { return static_cast<int64_t>(scalar_); }
  float f32() const;
  std::string_view text() const { return payload_; }  // of a scalar: its encoded form, one element or packed
  Span message() const;
  // Repeated scalars, written packed or one by one.
  void append_to(std::vector<int64_t>& out) const;
  void append_to(std::vector<float>& out) const;

  [[noreturn]] void refuse(ErrorCode code, std::string what) const;  // adds message, field and offset

 private:
  uint64_t varint(const char* what);
  std::string_view take(uint64_t size, const char* what);
  void skip(uint32_t wire_type);

  Span span_;
  const MessageSpec* spec_;
  const FieldSpec* field_ = nullptr;
  const char* at_;
  const char* end_;
  const char* field_at_;
  std::string_view payload_;
  uint64_t scalar_ = 0;
};

// Elements of a packed varint list; bad_format if the last one is cut off.
void append_varints(std::string_view packed, std::vector<int64_t>& out);

// Builds a message by appending fields; nested messages are finished strings.
class Writer {
 public:
  void integer(uint32_t number, int64_t v);
  void f32(uint32_t number, float v);
  void bytes(uint32_t number, std::string_view v);
  void ints(uint32_t number, const std::vector<int64_t>& v);  // packed
  void floats(uint32_t number, const std::vector<float>& v);  // packed
  const std::string& data() const { return out_; }
  std::string take() { return std::move(out_); }

 private:
  void varint(uint64_t v);
  std::string out_;
};

}  // namespace pelton::wire
