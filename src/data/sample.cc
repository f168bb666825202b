// SPDX-License-Identifier: Apache-2.0
#include "data/sample.h"

#include <algorithm>
#include <cmath>
#include <cstring>

namespace pelton::data {
namespace {

// Fields of texts cannot follow objects that go or come.
void check_bytes(std::string_view name, const Tensor& t) {
  if (bits(t.dtype()) < 8)
    fail(ErrorCode::bad_type, cat("'", name, "' is ", t, ", whose rows cannot follow their objects"));
}

Tensor keep_rows(const Tensor& t, const std::vector<int64_t>& rows) {
  Dims dims = t.dims();
  dims[0] = static_cast<int64_t>(rows.size());
  Tensor out(t.dtype(), dims);
  if (t.count() == 0 || rows.empty()) return out;
  const size_t row = static_cast<size_t>(t.bytes() / t.dims()[0]);
  auto* dst = static_cast<uint8_t*>(out.mutable_data());
  for (int64_t r : rows)
    std::memcpy(std::exchange(dst, dst + row),
                static_cast<const uint8_t*>(t.data()) + static_cast<size_t>(r) * row, row);
  return out;
}

Tensor moved_masks(const Tensor& masks, const Matrix& back, int width, int height) {
  const int64_t n = masks.dims()[0], h = masks.dims()[1], w = masks.dims()[2];
  Tensor out = Tensor::zeros(DType::u8, {n, height, width});
  uint8_t* dst = out.as_mutable<uint8_t>();
  for (int j = 0; j < height; ++j)
    for (int i = 0; i < width; ++i) {
      double x = i + 0.5, y = j + 0.5;
      apply(back, x, y);
      if (!(x >= 0 && y >= 0 && x < static_cast<double>(w) && y < static_cast<double>(h))) continue;
      const int64_t from = static_cast<int64_t>(y) * w + static_cast<int64_t>(x);
      for (int64_t k = 0; k < n; ++k)
        dst[(k * height + j) * width + i] = masks.as<uint8_t>()[k * h * w + from];
    }
  return out;
}

}  // namespace

std::string Origin::str() const {
  std::string out = file;
  if (!member.empty()) append(out, cat(out.empty() ? "" : ", member ", member));
  if (offset >= 0) append(out, cat(" at byte ", offset));
  return out;
}

Tensor* Sample::find(std::string_view name) {
  for (auto& [key, value] : fields)
    if (key == name) return &value;
  return nullptr;
}

Tensor& Sample::at(std::string_view name) {
  if (Tensor* t = find(name)) return *t;
  std::string have;
  for (const auto& f : fields) append(have, cat(have.empty() ? "" : ", ", f.first));
  fail(ErrorCode::bad_name, cat("the sample has no field '", name, "'"), "", cat("it has: ", have));
}

void Sample::set(std::string_view name, Tensor value) {
  if (Tensor* t = find(name))
    *t = std::move(value);
  else
    fields.emplace_back(name, std::move(value));
}

void Sample::erase(std::string_view name) {
  std::erase_if(fields, [&](const auto& f) { return f.first == name; });
}

LazyImage& Sample::picture() {
  if (!image) fail(ErrorCode::usage, "there is no picture yet", "", "put a decode stage first");
  return *image;
}

void move_targets(Sample& s, const Matrix& forward, int width, int height) {
  check_targets(s);
  Tensor *boxes = s.find("boxes"), *points = s.find("keypoints"), *masks = s.find("masks");
  if (masks) *masks = moved_masks(*masks, inverse(forward), width, height);
  if (points) {
    float* p = points->as_mutable<float>();
    for (int64_t i = 0; i < points->count() / 3; ++i, p += 3) {
      double x = p[0], y = p[1];
      apply(forward, x, y);
      p[0] = static_cast<float>(x);
      p[1] = static_cast<float>(y);
      if (!(x >= 0 && y >= 0 && x < width && y < height)) p[2] = 0;
    }
  }
  if (!boxes) return;
  std::vector<int64_t> kept;
  float* b = boxes->as_mutable<float>();
  for (int64_t i = 0; i < boxes->dims()[0]; ++i, b += 4) {
    double low[2] = {1e30, 1e30}, high[2] = {-1e30, -1e30};
    for (int corner = 0; corner < 4; ++corner) {
      double p[2] = {b[corner & 1 ? 2 : 0], b[corner & 2 ? 3 : 1]};
      apply(forward, p[0], p[1]);
      for (int k = 0; k < 2; ++k) low[k] = std::min(low[k], p[k]), high[k] = std::max(high[k], p[k]);
    }
    b[0] = static_cast<float>(std::clamp<double>(low[0], 0, width));
    b[1] = static_cast<float>(std::clamp<double>(low[1], 0, height));
    b[2] = static_cast<float>(std::clamp<double>(high[0], 0, width));
    b[3] = static_cast<float>(std::clamp<double>(high[1], 0, height));
    if (b[2] > b[0] && b[3] > b[1]) kept.push_back(i);
  }
  if (static_cast<int64_t>(kept.size()) != boxes->dims()[0]) keep_objects(s, kept);
}

void check_targets(Sample& s) {
  std::string_view first;
  int64_t objects = 0;
  for (const auto& [name, t] : s.fields) {
    if (!is_target(name)) continue;
    auto bad = [&, &name = name, &t = t](std::string_view want) {
      fail(ErrorCode::bad_format, cat("'", name, "' is ", t, ", not ", want));
    };
    if (t.rank() < 1) bad("one row an object");
    const Dims& d = t.dims();
    const bool none = d[0] == 0;  // of any shape
    if (name == "boxes" && (t.dtype() != DType::f32 || (!none && (t.rank() != 2 || d[1] != 4))))
      bad("f32 [n, 4]");
    if (name == "keypoints" && (t.dtype() != DType::f32 || (!none && (t.rank() != 3 || d[2] != 3))))
      bad("f32 [n, k, 3]");
    if (name == "masks" && (t.dtype() != DType::u8 || t.rank() != 3)) bad("u8 [n, h, w]");
    if (first.empty()) first = name, objects = d[0];
    if (d[0] != objects) bad(cat(objects, " rows as '", first, "' has"));
  }
}

bool has_targets(Sample& s) {
  return s.find("boxes") || s.find("keypoints") || s.find("masks");
}

bool is_target(std::string_view field) {
  return field == "boxes" || field == "keypoints" || field == "masks" || field.starts_with("box_");
}

void keep_objects(Sample& s, const std::vector<int64_t>& rows) {
  check_targets(s);
  for (auto& [name, value] : s.fields)
    if (is_target(name)) check_bytes(name, value), value = keep_rows(value, rows);
}

void append_objects(Sample& to, Sample& from) {
  check_targets(to);
  check_targets(from);
  auto both_have = [&](const Sample& one, Sample& other) {
    for (const auto& [name, t] : one.fields)
      if (is_target(name) && !other.find(name))
        fail(ErrorCode::bad_format,
             cat("sample ", one.index, " has '", name, "', sample ", other.index, " has not"));
  };
  both_have(to, from);
  both_have(from, to);
  for (auto& [name, value] : to.fields) {
    if (!is_target(name)) continue;
    check_bytes(name, value);
    const Tensor more = from.at(name);
    Dims dims = value.dims();
    if (more.dtype() != value.dtype() || more.rank() != value.rank() ||
        !std::equal(dims.begin() + 1, dims.end(), more.dims().begin() + 1))
      fail(ErrorCode::bad_format,
           cat("'", name, "' is ", value, " here and ", more, " in sample ", from.index), from.origin.str());
    dims[0] += more.dims()[0];
    Tensor both(value.dtype(), dims);
    auto* out = static_cast<uint8_t*>(both.mutable_data());
    if (value.bytes()) std::memcpy(out, value.data(), static_cast<size_t>(value.bytes()));
    if (more.bytes()) std::memcpy(out + value.bytes(), more.data(), static_cast<size_t>(more.bytes()));
    value = std::move(both);
  }
}

void crop_sample(Sample& s, Rect r) {
  s.picture().crop(r);
  if (has_targets(s))
    move_targets(s, {1, 0, -static_cast<double>(r.x0), 0, 1, -static_cast<double>(r.y0), 0, 0, 1}, r.width(),
                 r.height());
}

void resize_sample(Sample& s, int w, int h, Filter filter, bool antialias) {
  LazyImage& p = s.picture();
  const Matrix m = {
      static_cast<double>(w) / p.width(), 0, 0, 0, static_cast<double>(h) / p.height(), 0, 0, 0, 1};
  p.resize(w, h, filter, antialias);
  if (has_targets(s)) move_targets(s, m, w, h);
}

void warp_sample(Sample& s, const Matrix& out_to_in, int w, int h, Filter filter) {
  s.picture().warp(out_to_in, w, h, filter);
  if (has_targets(s)) move_targets(s, inverse(out_to_in), w, h);
}

}  // namespace pelton::data
