// SPDX-License-Identifier: Apache-2.0
#include "tensor/proto_wire.h"

#include <bit>
#include <cstring>

namespace pelton::wire {
namespace {

static_assert(std::endian::native == std::endian::little, "fixed-width fields are read in place");

enum WireType : uint32_t { kVarint = 0, kFixed64 = 1, kBytes = 2, kGroup = 3, kGroupEnd = 4, kFixed32 = 5 };

WireType wire_type_of(Kind kind) {
  switch (kind) {
    case Kind::f32:
      return kFixed32;
    case Kind::f64:
      return kFixed64;
    case Kind::string:
    case Kind::bytes:
    case Kind::message:
      return kBytes;
    default:
      return kVarint;
  }
}
bool is_scalar(Kind kind) {
  return wire_type_of(kind) != kBytes;
}

}  // namespace

MessageSpec find_message(const FieldSpec* table, size_t count, std::string_view name) {
  size_t first = 0;
  while (first < count && table[first].message != name) ++first;
  size_t last = first;
  while (last < count && table[last].message == name) ++last;
  PELTON_CHECK(first < last, "no message ", name);
  return {name, table + first, last - first};
}

Reader::Reader(Span message, const MessageSpec& spec)
    : span_(message),
      spec_(&spec),
      at_(message.bytes.data()),
      end_(at_ + message.bytes.size()),
      field_at_(at_) {
  if (message.depth > kMaxDepth)
    fail(ErrorCode::limit, cat("messages nested more than ", kMaxDepth, " deep"),
         cat(spec.name, " at byte ", message.offset()));
}

void Reader::refuse(ErrorCode code, std::string what) const {
  std::string where(spec_->name);
  if (field_) append(where, cat(".", field_->name));
  fail(code, std::move(what), cat(where, " at byte ", static_cast<size_t>(field_at_ - span_.origin)),
       "the file is damaged or not an ONNX file");
}

uint64_t Reader::varint(const char* what) {
  uint64_t v = 0;
  for (int shift = 0; shift < 64; shift += 7) {
    if (at_ == end_) refuse(ErrorCode::bad_format, cat("the file ends inside a ", what));
    auto byte = static_cast<uint8_t>(*at_++);
    v |= static_cast<uint64_t>(byte & 0x7f) << shift;
    if (!(byte & 0x80)) return v;
  }
  refuse(ErrorCode::bad_format, cat("a ", what, " is longer than 10 bytes"));
}

std::string_view Reader::take(uint64_t size, const char* what) {
  auto left = static_cast<uint64_t>(end_ - at_);
  if (size > left)
    refuse(ErrorCode::bad_format, cat("a ", what, " of ", size, " bytes where ", left, " are left"));
  std::string_view out(at_, size);
  at_ += size;
  return out;
}

void Reader::skip(uint32_t wire_type) {
  switch (wire_type) {
    case kVarint:
      varint("number");
      return;
    case kFixed64:
      take(8, "fixed-width number");
      return;
    case kBytes:
      take(varint("length"), "field");
      return;
    case kFixed32:
      take(4, "fixed-width number");
      return;
    default:
      refuse(ErrorCode::bad_format, cat("wire type ", wire_type, " is not used by ONNX"));
  }
}

uint32_t Reader::next() {
  while (at_ != end_) {
    field_ = nullptr;
    field_at_ = at_;
    uint64_t tag = varint("field tag");
    auto wire_type = static_cast<uint32_t>(tag & 7);
    uint64_t number = tag >> 3;
    if (number == 0 || number > 0x1fffffff) refuse(ErrorCode::bad_format, cat("field number ", number));
    for (size_t i = 0; i < spec_->count && !field_; ++i)
      if (spec_->fields[i].number == number) field_ = &spec_->fields[i];
    if (!field_) {
      skip(wire_type);
      continue;
    }
    bool packed = field_->repeated && is_scalar(field_->kind) && wire_type == kBytes;
    WireType expected = wire_type_of(field_->kind);
    if (wire_type != expected && !packed)
      refuse(ErrorCode::bad_format,
             cat("wire type ", wire_type, " where ", static_cast<uint32_t>(expected), " belongs"));
    if (wire_type == kVarint) {
      const char* start = at_;
      scalar_ = varint("number");
      payload_ = {start, static_cast<size_t>(at_ - start)};
    } else if (wire_type == kBytes) {
      payload_ = take(varint("length"), "field");
    } else {
      payload_ = take(wire_type == kFixed64 ? 8 : 4, "fixed-width number");
      scalar_ = 0;
      std::memcpy(&scalar_, payload_.data(), payload_.size());
    }
    return field_->number;
  }
  return 0;
}

float Reader::f32() const {
  return std::bit_cast<float>(static_cast<uint32_t>(scalar_));
}

Span Reader::message() const {
  return {payload_, span_.origin, span_.depth + 1};
}

void Reader::append_to(std::vector<int64_t>& out) const {
  try {
    append_varints(payload_, out);
  } catch (const Error& e) {
    refuse(e.code(), e.message());
  }
}

void Reader::append_to(std::vector<float>& out) const {
  if (payload_.size() % 4)
    refuse(ErrorCode::bad_format, cat(payload_.size(), " bytes of packed 4-byte numbers"));
  size_t old = out.size();
  out.resize(old + payload_.size() / 4);
  if (!payload_.empty()) std::memcpy(out.data() + old, payload_.data(), payload_.size());
}

void append_varints(std::string_view packed, std::vector<int64_t>& out) {
  uint64_t v = 0;
  int shift = 0;
  for (char c : packed) {
    auto byte = static_cast<uint8_t>(c);
    if (shift > 63) fail(ErrorCode::bad_format, "a packed number is longer than 10 bytes");
    v |= static_cast<uint64_t>(byte & 0x7f) << shift;
    shift += 7;
    if (byte & 0x80) continue;
    out.push_back(static_cast<int64_t>(v));
    v = 0;
    shift = 0;
  }
  if (shift) fail(ErrorCode::bad_format, "a packed number is cut off");
}

void Writer::varint(uint64_t v) {
  while (v >= 0x80) {
    out_.push_back(static_cast<char>(v | 0x80));
    v >>= 7;
  }
  out_.push_back(static_cast<char>(v));
}
void Writer::integer(uint32_t number, int64_t v) {
  varint(static_cast<uint64_t>(number) << 3 | kVarint);
  varint(static_cast<uint64_t>(v));
}
void Writer::f32(uint32_t number, float v) {
  varint(static_cast<uint64_t>(number) << 3 | kFixed32);
  out_.append(reinterpret_cast<const char*>(&v), 4);
}
void Writer::bytes(uint32_t number, std::string_view v) {
  varint(static_cast<uint64_t>(number) << 3 | kBytes);
  varint(v.size());
  out_.append(v);
}
void Writer::ints(uint32_t number, const std::vector<int64_t>& v) {
  Writer packed;
  for (int64_t x : v) packed.varint(static_cast<uint64_t>(x));
  bytes(number, packed.data());
}
void Writer::floats(uint32_t number, const std::vector<float>& v) {
  bytes(number, {reinterpret_cast<const char*>(v.data()), v.size() * 4});
}

}  // namespace pelton::wire
