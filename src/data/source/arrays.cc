// SPDX-License-Identifier: Apache-2.0
// Sources that are one array with a row for each sample: .npy and .npz, raw bytes, and made-up data.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "data/source/arrays.h"
#include "data/source/http.h"
#include "tensor/npy.h"
#include "tensor/npy_header.h"

namespace pelton::data {

Tensor row(const Tensor& all, int64_t index) {
  Dims dims(all.dims().begin() + 1, all.dims().end());
  const int64_t bytes = all.bytes() / std::max<int64_t>(1, all.dims()[0]);
  return Tensor::borrow(all.dtype(), dims, static_cast<const uint8_t*>(all.data()) + index * bytes,
                        std::make_shared<Tensor>(all));
}

std::vector<std::string> digit_names(int64_t n) {
  std::vector<std::string> out;
  for (int64_t i = 0; i < n; ++i) out.push_back(cat(i));
  return out;
}

namespace {

// A little-endian C-order .npy stays on disk, rows are read by position; any other is read whole.
class NpyFile : public Source {
 public:
  NpyFile(std::string path, std::string field) : file_(std::move(path)), field_(std::move(field)) {
    std::string head(static_cast<size_t>(std::min<int64_t>(file_.size(), 1 << 16)), '\0');
    file_.read(0, {reinterpret_cast<uint8_t*>(head.data()), head.size()});
    with_place(file_.path(), [&] { header_ = parse_npy_header(head); });
    if (header_.dims.empty())
      fail(ErrorCode::bad_shape, "a scalar has no rows to take samples from", file_.path());
    in_place_ = !header_.fortran && header_.order != '>' &&
                (header_.kind == 'f' || header_.kind == 'i' || header_.kind == 'u' || header_.kind == 'b');
    if (!in_place_) {
      auto bytes = std::make_shared<const std::string>(whole_text(file_.path()));
      whole_ = with_place(file_.path(), [&] { return parse_npy(*bytes, bytes); });
      if (whole_.dtype() == DType::string)
        fail(ErrorCode::bad_type, cat("an array of ", whole_, ": rows of texts are not read"), file_.path());
      return;
    }
    // The type of one row, by reading an array of no rows with the same header.
    Dims none = header_.dims;
    none[0] = 0;
    const std::string descr = cat(header_.size == 1 ? '|' : '<', header_.kind, header_.size);
    dtype_ = parse_npy(format_npy_header(descr, none)).dtype();
    row_ = Dims(header_.dims.begin() + 1, header_.dims.end());
    row_bytes_ = byte_size(dtype_, element_count(row_));
    if (header_.dims[0] > 0 &&
        row_bytes_ > (file_.size() - static_cast<int64_t>(header_.data_offset)) / header_.dims[0])
      fail(ErrorCode::bad_format,
           cat("the header asks for ", header_.dims[0], " rows of ", row_bytes_, " bytes, the file has ",
               file_.size(), " bytes"),
           file_.path());
  }
  int64_t size() const override { return header_.dims[0]; }
  Sample read(int64_t index) const override {
    Sample s;
    s.index = index;
    const int64_t offset = static_cast<int64_t>(header_.data_offset) + index * row_bytes_;
    s.origin = {file_.path(), cat("row ", index), in_place_ ? offset : -1};
    if (!in_place_) {
      s.set(field_, row(whole_, index));
      return s;
    }
    Tensor t(dtype_, row_);
    file_.read(offset, {static_cast<uint8_t*>(t.mutable_data()), static_cast<size_t>(t.bytes())});
    s.set(field_, std::move(t));
    return s;
  }
  Dims picture_dims(std::string_view field) const override {
    const Dims& d = header_.dims;
    const bool bytes = in_place_ ? dtype_ == DType::u8 : whole_.dtype() == DType::u8;
    return field == field_ && bytes && d.size() == 4 ? Dims(d.begin() + 1, d.end()) : Dims();
  }
  std::string identity() const override { return cat("npy ", header_.dims, " ", file_.size()); }

 private:
  PositionedFile file_;
  std::string field_;
  NpyHeader header_;
  bool in_place_ = false;
  Tensor whole_;
  DType dtype_ = DType::u8;
  Dims row_;
  int64_t row_bytes_ = 0;
};

std::unique_ptr<Source> make_npy(const Args& a, const std::string& base) {
  const std::string path = below(base, a.text("path"));
  const std::string_view name = std::string_view(path).substr(0, is_url(path) ? path.find('?') : path.npos);
  if (!name.ends_with(".npz")) return std::make_unique<NpyFile>(path, a.text("field"));
  std::vector<std::pair<std::string, Tensor>> fields;
  const auto bytes = std::make_shared<const std::string>(whole_text(path));
  for (auto& [name, t] : with_place(path, [&] { return parse_npz(*bytes, bytes); })) {
    if (t.dtype() == DType::string)
      fail(ErrorCode::bad_type, cat("'", name, "' is ", t, ": rows of texts are not read"), path);
    if (t.rank() == 0 || (!fields.empty() && t.dims()[0] != fields[0].second.dims()[0]))
      fail(ErrorCode::bad_shape, cat("'", name, "' is ", t, "; every array needs the same number of rows"),
           path);
    fields.emplace_back(name, t);
  }
  if (fields.empty()) fail(ErrorCode::bad_format, "the archive holds no arrays", path);
  return std::make_unique<Arrays>(path, std::move(fields));
}

std::vector<int64_t> sizes(const Args& a, std::string_view name) {
  std::vector<int64_t> out;
  for (double v : a.numbers(name)) {
    if (!(v >= 1 && v <= 0x1p40) || v != std::floor(v))
      fail(ErrorCode::usage, cat("'", name, "' holds ", v, ", not a size"), a.where());
    out.push_back(static_cast<int64_t>(v));
  }
  return out;
}

DType dtype_of(const Args& a) {
  auto t = dtype_from_name(a.text("dtype"));
  if (!t || bits(*t) < 8)
    fail(ErrorCode::usage, cat("'dtype' = \"", a.text("dtype"), "\" is not an element type"), a.where(),
         "use f32, u8, i64, ...");
  return *t;
}

class Raw : public Source {
 public:
  Raw(std::string path, std::string field, DType dtype, Dims dims, int64_t skip)
      : file_(std::move(path)), field_(std::move(field)), dtype_(dtype), dims_(std::move(dims)), skip_(skip) {
    row_bytes_ = byte_size(dtype_, element_count(dims_));
    const int64_t body = file_.size() - skip_;
    if (body < row_bytes_ || body % row_bytes_)
      fail(ErrorCode::bad_shape,
           cat("after ", skip_, " bytes the file has ", body, ", not a whole number of ", row_bytes_,
               "-byte samples"),
           file_.path());
  }
  int64_t size() const override { return (file_.size() - skip_) / row_bytes_; }
  Sample read(int64_t index) const override {
    Sample s;
    s.index = index;
    s.origin = {file_.path(), "", skip_ + index * row_bytes_};
    Tensor t(dtype_, dims_);
    file_.read(s.origin.offset, {static_cast<uint8_t*>(t.mutable_data()), static_cast<size_t>(row_bytes_)});
    s.set(field_, std::move(t));
    return s;
  }
  Dims picture_dims(std::string_view field) const override {
    return field == field_ && dtype_ == DType::u8 && dims_.size() == 3 ? dims_ : Dims();
  }
  std::string identity() const override { return cat("raw ", file_.size(), " ", row_bytes_); }

 private:
  PositionedFile file_;
  std::string field_;
  DType dtype_;
  Dims dims_;
  int64_t skip_, row_bytes_ = 0;
};

// Uniform bits (integers) or numbers in [0, 1), the same for the same index; labels count round the classes.
class Synthetic : public Source {
 public:
  Synthetic(int64_t n, DType dtype, Dims dims, int64_t classes)
      : n_(n), dtype_(dtype), dims_(std::move(dims)), classes_(classes) {}
  int64_t size() const override { return n_; }
  Sample read(int64_t index) const override {
    Sample s;
    s.index = index;
    s.origin.member = cat("synthetic sample ", index);
    Tensor t(dtype_, dims_);
    const Draw draw(0, 0, static_cast<uint64_t>(index), 0x73796e);
    const int64_t count = t.count();
    auto* raw = static_cast<uint8_t*>(t.mutable_data());
    for (int64_t i = 0; i < count; i += 4) {
      const PhiloxBlock words = draw.block(0, static_cast<uint32_t>(i / 4));
      for (int64_t k = 0; k < std::min<int64_t>(4, count - i); ++k) {
        if (dtype_ == DType::u8)
          raw[i + k] = static_cast<uint8_t>(words[static_cast<size_t>(k)]);
        else if (is_float(dtype_))
          t.set_double(i + k, uniform_from_bits(words[static_cast<size_t>(k)]));
        else
          t.set_int(i + k, words[static_cast<size_t>(k)]);
      }
    }
    s.set("image", std::move(t));
    if (classes_ > 0) s.set("label", label_tensor(index % classes_));
    return s;
  }
  std::vector<std::string> classes() const override { return digit_names(classes_); }
  Dims picture_dims(std::string_view field) const override {
    return field == "image" && dtype_ == DType::u8 && dims_.size() == 3 ? dims_ : Dims();
  }
  std::string identity() const override { return cat("synthetic ", n_, " ", dtype_, dims_, " ", classes_); }

 private:
  int64_t n_;
  DType dtype_;
  Dims dims_;
  int64_t classes_;
};

}  // namespace

std::vector<SourceKind> array_source_kinds() {
  using T = OptionType;
  return {{{"npy",
            "the rows of a .npy array, or of all arrays of an .npz archive (fields by name)",
            {{"path", T::text, {}, "the file"}, {"field", T::text, "data", "field name of a .npy"}}},
           make_npy},
          {{"raw",
            "fixed-size samples one after another in a file without a header",
            {{"path", T::text, {}, "the file"},
             {"dims", T::numbers, {}, "dimensions of one sample"},
             {"dtype", T::text, "f32", "element type"},
             {"skip_bytes", T::integer, 0, "bytes before the first sample", 0},
             {"field", T::text, "data", "field name"}}},
           [](const Args& a, const std::string& base) -> std::unique_ptr<Source> {
             return std::make_unique<Raw>(below(base, a.text("path")), a.text("field"), dtype_of(a),
                                          sizes(a, "dims"), a.integer("skip_bytes"));
           }},
          {{"synthetic",
            "made-up samples; fields image and label",
            {{"dims", T::numbers, {}, "dimensions of one sample, such as [224, 224, 3]"},
             {"dtype", T::text, "u8", "element type"},
             {"count", T::integer, 1024, "number of samples", 1},
             {"class_count", T::integer, 10, "labels count round these; 0: no labels", 0}}},
           [](const Args& a, const std::string&) -> std::unique_ptr<Source> {
             return std::make_unique<Synthetic>(a.integer("count"), dtype_of(a), sizes(a, "dims"),
                                                a.integer("class_count"));
           }}};
}

}  // namespace pelton::data
