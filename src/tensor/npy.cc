// SPDX-License-Identifier: Apache-2.0
#include "tensor/npy.h"

#include <algorithm>
#include <cstring>

#include "base/file.h"
#include "tensor/npy_header.h"
#include "tensor/zip_read.h"

namespace pelton {
namespace {

constexpr uint64_t kMemberLimitBytes = uint64_t{1} << 34;

// The dtype whose bytes the array holds, one element as NumPy stores it.
DType stored_dtype(const NpyHeader& h) {
  auto pick = [&](std::initializer_list<DType> choices) -> DType {
    for (DType t : choices)
      if (bits(t) == 8 * h.size) return t;
    fail(ErrorCode::bad_type, cat("elements of kind '", h.kind, "' and ", h.size, " bytes are not supported"),
         ".npy header");
  };
  switch (h.kind) {
    case 'f':
      return pick({DType::f64, DType::f32, DType::f16});
    case 'c':
      return h.size == 8 ? DType::f32 : h.size == 16 ? DType::f64 : pick({});
    case 'i':
      return pick({DType::i64, DType::i32, DType::i16, DType::i8});
    case 'u':
      return pick({DType::u64, DType::u32, DType::u16, DType::u8});
    case 'b':
      return pick({DType::boolean});
    case 'V':
      return pick({DType::bf16, DType::u8});
    default:
      return DType::string;
  }
}

// Fortran order is the row-major order of the reversed shape: element i of the file goes to its place in
// `dims`.
Tensor from_fortran(const Tensor& t) {
  const Dims& dims = t.dims();
  Tensor out(t.dtype(), dims);
  auto width = static_cast<size_t>(bits(t.dtype()) / 8);
  const auto* from = static_cast<const char*>(t.data());
  auto* to = static_cast<char*>(out.mutable_data());
  Dims strides = row_major_strides(dims), index(dims.size(), 0);
  int64_t target = 0;
  for (int64_t i = 0; i < t.count(); ++i) {
    std::memcpy(to + static_cast<size_t>(target) * width, from + static_cast<size_t>(i) * width, width);
    for (size_t d = 0; d < dims.size(); ++d) {
      target += strides[d];
      if (++index[d] < dims[d]) break;
      target -= strides[d] * dims[d];
      index[d] = 0;
    }
  }
  return out;
}

constexpr uint32_t kReplacement = 0xfffd;
bool is_code_point(uint32_t c) {
  return c <= 0x10ffff && (c < 0xd800 || c >= 0xe000);
}

void append_utf8(std::string& out, uint32_t c) {
  if (!is_code_point(c)) c = kReplacement;
  auto tail = [&](int shift) { out.push_back(static_cast<char>(0x80 | (c >> shift & 0x3f))); };
  if (c < 0x80) return out.push_back(static_cast<char>(c));
  if (c < 0x800) {
    out.push_back(static_cast<char>(0xc0 | c >> 6));
  } else if (c < 0x10000) {
    out.push_back(static_cast<char>(0xe0 | c >> 12));
    tail(6);
  } else {
    out.push_back(static_cast<char>(0xf0 | c >> 18));
    tail(12);
    tail(6);
  }
  tail(0);
}

Tensor read_strings(const NpyHeader& h, std::string_view data) {
  int64_t count = element_count(h.dims), width = h.kind == 'U' ? 4 * h.size : h.size;
  if (h.order == '>') fail(ErrorCode::bad_type, "big-endian strings are not supported", ".npy header");
  const auto bytes = static_cast<int64_t>(data.size());
  if (width ? bytes % width || bytes / width != count : bytes || count > (int64_t{1} << 20))
    fail(ErrorCode::bad_format,
         cat("the file holds ", data.size(), " bytes where ", count, " strings of ", width, " belong"));
  std::vector<std::string> out(static_cast<size_t>(count));
  for (int64_t i = 0; i < count; ++i) {
    std::string& s = out[static_cast<size_t>(i)];
    std::string_view item = data.substr(static_cast<size_t>(i * width), static_cast<size_t>(width));
    if (h.kind == 'S') {
      s = item.substr(0, item.find_last_not_of('\0') + 1);
      continue;
    }
    // Zeros at the end fill up; between others they belong to the text.
    std::vector<uint32_t> points(item.size() / 4);
    if (!points.empty()) std::memcpy(points.data(), item.data(), item.size());
    while (!points.empty() && points.back() == 0) points.pop_back();
    for (uint32_t c : points) append_utf8(s, c);
  }
  Tensor t = Tensor::of_strings(h.dims, std::move(out));
  if (h.fortran && h.dims.size() > 1)
    fail(ErrorCode::bad_type, "string arrays in Fortran order are not supported");
  return t;
}

void swap_elements(Tensor& t, size_t width) {
  auto* p = static_cast<char*>(t.mutable_data());
  for (int64_t i = 0; i < t.count(); ++i, p += width) std::reverse(p, p + width);
}

// Bit patterns stored one element a byte become the packed type that the caller expects.
Tensor reinterpret(Tensor t, DType to) {
  if (t.dtype() == to) return t;
  bool same_bits = bits(t.dtype()) == bits(to) && (t.dtype() == DType::bf16 || t.dtype() == DType::u8);
  if (same_bits && bits(to) == 8)
    return Tensor::borrow(to, t.dims(), t.data(), std::make_shared<Tensor>(t)).clone();
  if (!is_sub_byte(to) || bits(t.dtype()) != 8) return t;
  Tensor packed = Tensor::zeros(to, t.dims());
  auto* out = static_cast<uint8_t*>(packed.mutable_data());
  const auto* in = static_cast<const uint8_t*>(t.data());
  int width = bits(to);
  for (int64_t i = 0; i < t.count(); ++i)
    out[i * width / 8] =
        static_cast<uint8_t>(out[i * width / 8] | (in[i] & ((1 << width) - 1)) << (i * width % 8));
  return packed;
}

std::string string_npy(const Tensor& t) {
  size_t longest = 1;
  std::vector<std::vector<uint32_t>> points;
  for (const std::string& s : t.strings()) {
    auto& p = points.emplace_back();
    for (size_t i = 0; i < s.size();) {
      auto c = static_cast<uint8_t>(s[i]);
      int extra = c < 0xc0 ? 0 : c < 0xe0 ? 1 : c < 0xf0 ? 2 : 3;
      uint32_t v = extra ? c & (0x3fu >> extra) : c;
      constexpr uint32_t kLeast[] = {0, 0x80, 0x800, 0x10000};  // that needs so many further bytes
      const uint32_t least = kLeast[extra];
      for (++i; extra > 0 && i < s.size(); --extra, ++i) v = v << 6 | (static_cast<uint8_t>(s[i]) & 0x3f);
      p.push_back(v < least || !is_code_point(v) ? kReplacement : v);
    }
    longest = std::max(longest, p.size());
  }
  std::string out = format_npy_header(cat("<U", longest), t.dims());
  for (auto& p : points) {
    p.resize(longest);
    out.append(reinterpret_cast<const char*>(p.data()), longest * 4);
  }
  return out;
}

std::string descr_of(DType t) {
  if (t == DType::boolean) return "|b1";
  if (t == DType::bf16) return "<V2";
  if (is_sub_byte(t)) return is_signed_int(t) ? "|i1" : is_unsigned_int(t) ? "|u1" : "|V1";
  if (bits(t) == 8) return is_float(t) ? "|V1" : t == DType::i8 ? "|i1" : "|u1";
  return cat('<', is_float(t) ? 'f' : is_signed_int(t) ? 'i' : 'u', bits(t) / 8);
}

}  // namespace

Tensor parse_npy(std::string_view bytes, std::shared_ptr<const void> owner, std::optional<DType> expected) {
  NpyHeader h = parse_npy_header(bytes);
  std::string_view data = bytes.substr(h.data_offset);
  DType dtype = stored_dtype(h);
  if (dtype == DType::string) return read_strings(h, data);
  int64_t count = element_count(h.dims);
  if (count > 0 && static_cast<int64_t>(data.size()) / h.size < count)
    fail(ErrorCode::bad_format, cat("the file holds ", data.size(), " bytes where ", count, " elements of ",
                                    h.size, " bytes belong"));
  Dims dims = h.dims;
  if (h.kind == 'c') {
    if (h.fortran && dims.size() > 1)
      fail(ErrorCode::bad_type, "complex arrays in Fortran order are not supported");
    dims.push_back(2);
  }
  size_t width = static_cast<size_t>(bits(dtype)) / 8;
  Tensor t = Tensor::borrow(dtype, dims, data.data(), owner);
  bool aligned = reinterpret_cast<uintptr_t>(data.data()) % width == 0;
  if (h.order == '>') swap_elements(t, width);
  if (h.fortran && dims.size() > 1)
    t = from_fortran(t);
  else if (!owner || !aligned)
    t = t.clone();
  return expected ? reinterpret(std::move(t), *expected) : t;
}

std::string format_npy(const Tensor& t) {
  if (t.dtype() == DType::string) return string_npy(t);
  std::string out = format_npy_header(descr_of(t.dtype()), t.dims());
  if (!is_sub_byte(t.dtype())) {
    out.append(static_cast<const char*>(t.data()), static_cast<size_t>(t.bytes()));
    return out;
  }
  int width = bits(t.dtype());
  const auto* in = static_cast<const uint8_t*>(t.data());
  for (int64_t i = 0; i < t.count(); ++i) {
    int v = in[i * width / 8] >> (i * width % 8) & ((1 << width) - 1);
    if (is_signed_int(t.dtype()) && v >> (width - 1)) v -= 1 << width;
    out.push_back(static_cast<char>(v));
  }
  return out;
}

std::map<std::string, Tensor> parse_npz(std::string_view bytes, std::shared_ptr<const void> owner) {
  std::map<std::string, Tensor> out;
  for (const ZipMember& m : list_zip(bytes)) {
    std::string_view key = m.name;
    if (key.ends_with(".npy")) key.remove_suffix(4);
    out[std::string(key)] = with_place(cat("member \"", m.name, "\""), [&] {
      std::shared_ptr<const void> holder = owner;
      std::string_view content = m.packed;
      if (m.deflated) {
        auto unpacked = std::make_shared<std::string>(inflate_member(m, kMemberLimitBytes));
        content = *unpacked;
        holder = unpacked;
      }
      check_crc(m, content);
      return parse_npy(content, holder);
    });
  }
  return out;
}

Tensor load_npy(const std::string& path, std::optional<DType> expected) {
  return with_place(path, [&] {
    std::string bytes = read_file(path);
    return parse_npy(bytes, {}, expected);
  });
}
void save_npy(const std::string& path, const Tensor& tensor) {
  write_file(path, format_npy(tensor));
}
std::map<std::string, Tensor> load_npz(const std::string& path) {
  return with_place(path, [&] {
    std::string bytes = read_file(path);
    return parse_npz(bytes);
  });
}

}  // namespace pelton
