// SPDX-License-Identifier: Apache-2.0
// Sources that are one array with a row for each sample: IDX (MNIST), CIFAR binaries, .npy and .npz, raw
// bytes, and made-up data.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "data/source/http.h"
#include "data/source/source.h"
#include "tensor/npy.h"
#include "tensor/npy_header.h"

namespace pelton::data {
namespace {

Tensor row(const Tensor& all, int64_t index) {
  Dims dims(all.dims().begin() + 1, all.dims().end());
  const int64_t bytes = all.bytes() / std::max<int64_t>(1, all.dims()[0]);
  return Tensor::borrow(all.dtype(), dims, static_cast<const uint8_t*>(all.data()) + index * bytes,
                        std::make_shared<Tensor>(all));
}

// Fields that all have the sample as their first dimension, in memory.
class Arrays : public Source {
 public:
  Arrays(std::string path, std::vector<std::pair<std::string, Tensor>> fields,
         std::vector<std::string> classes = {})
      : path_(std::move(path)), fields_(std::move(fields)), classes_(std::move(classes)) {}
  int64_t size() const override { return fields_[0].second.dims()[0]; }
  Sample read(int64_t index) const override {
    Sample s;
    s.index = index;
    s.origin = {path_, cat("row ", index), -1};
    for (const auto& [name, all] : fields_) s.set(name, row(all, index));
    return s;
  }
  std::vector<std::string> classes() const override { return classes_; }
  std::string identity() const override {
    std::string out = "arrays";
    for (const auto& [name, all] : fields_) append(out, cat(" ", name, " ", all.str()));
    return out;
  }

 private:
  std::string path_;
  std::vector<std::pair<std::string, Tensor>> fields_;
  std::vector<std::string> classes_;
};

void check_labels(const Tensor& labels, int64_t classes, const std::string& path) {
  for (int64_t i = 0; i < labels.count(); ++i)
    if (labels.get_int(i) < 0 || labels.get_int(i) >= classes)
      fail(ErrorCode::bad_format, cat("label ", labels.get_int(i), " is outside 0 .. ", classes - 1),
           cat(path, " row ", i));
}

// IDX: two zero bytes, element type, rank, big-endian sizes, elements.
Tensor read_idx(const std::string& path) {
  const std::string b = expanded(whole_text(path), path);
  auto byte = [&](size_t i) { return static_cast<uint8_t>(b[i]); };
  if (b.size() < 4 || byte(0) || byte(1) || byte(2) != 8 || byte(3) < 1 || byte(3) > 4)
    fail(ErrorCode::bad_format, "not an IDX file of unsigned bytes", path);
  const size_t rank = byte(3), body = 4 + 4 * rank;
  if (b.size() < body) fail(ErrorCode::bad_format, "the IDX header is cut short", path);
  Dims dims;
  int64_t need = 1;
  for (size_t i = 0; i < rank; ++i) {
    const int64_t d = static_cast<int64_t>(byte(4 + 4 * i)) << 24 | byte(5 + 4 * i) << 16 |
                      byte(6 + 4 * i) << 8 | byte(7 + 4 * i);
    if (d != 0 && need > (int64_t{1} << 40) / d)
      fail(ErrorCode::limit, "the IDX header asks for too many elements", path);
    need *= d;
    dims.push_back(d);
  }
  if (static_cast<int64_t>(b.size() - body) != need)
    fail(ErrorCode::bad_format,
         cat("the IDX header asks for ", need, " bytes, the file has ", b.size() - body), path);
  Tensor t(DType::u8, dims);
  std::memcpy(t.mutable_data(), b.data() + body, static_cast<size_t>(need));
  return t;
}

std::vector<std::string> digit_names(int64_t n) {
  std::vector<std::string> out;
  for (int64_t i = 0; i < n; ++i) out.push_back(cat(i));
  return out;
}

std::unique_ptr<Source> make_mnist(const Args& a, const std::string& base) {
  const std::string ip = below(base, a.text("images")), lp = below(base, a.text("labels"));
  Tensor images = read_idx(ip), labels = read_idx(lp);
  if (images.rank() != 3 || labels.rank() != 1 || images.dims()[0] != labels.dims()[0])
    fail(ErrorCode::bad_shape,
         cat("images are ", images, " and labels ", labels, "; expected u8[n,h,w] and u8[n]"),
         cat(ip, ", ", lp));
  check_labels(labels, a.integer("class_count"), lp);
  const Dims d = images.dims();
  return std::make_unique<Arrays>(ip,
                                  std::vector<std::pair<std::string, Tensor>>{
                                      {"image", images.reshaped({d[0], d[1], d[2], 1})},
                                      {"label", from_ints(DType::i64, labels.dims(), to_ints(labels))}},
                                  digit_names(a.integer("class_count")));
}

std::unique_ptr<Source> make_cifar(const Args& a, const std::string& base) {
  const int64_t classes = a.integer("class_count"), label_bytes = classes == 100 ? 2 : 1,
                record = label_bytes + 3072;
  std::string all, first;
  for (const auto& p : a.texts("files")) {
    const std::string path = below(base, p);
    const std::string b = expanded(whole_text(path), path);
    if (b.empty() || static_cast<int64_t>(b.size()) % record)
      fail(ErrorCode::bad_format,
           cat("a CIFAR-", classes, " file is a whole number of ", record, "-byte records, this one has ",
               b.size(), " bytes"),
           path);
    all += b;
    if (first.empty()) first = path;
  }
  const int64_t n = static_cast<int64_t>(all.size()) / record;
  Tensor images(DType::u8, {n, 32, 32, 3}), labels(DType::i64, {n});
  uint8_t* dst = images.as_mutable<uint8_t>();
  int64_t* label = labels.as_mutable<int64_t>();
  for (int64_t i = 0; i < n; ++i) {
    const auto* r = reinterpret_cast<const uint8_t*>(all.data()) + i * record;
    label[i] = r[label_bytes - 1];  // CIFAR-100: the fine label
    for (int64_t p = 0; p < 1024; ++p)
      for (int64_t c = 0; c < 3; ++c) *dst++ = r[label_bytes + c * 1024 + p];
  }
  check_labels(labels, classes, first);
  return std::make_unique<Arrays>(
      first, std::vector<std::pair<std::string, Tensor>>{{"image", images}, {"label", labels}},
      digit_names(classes));
}

// A little-endian C-order .npy that stays on disk; rows are read by position.
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
  return {
      {{"mnist",
        "IDX files as MNIST has them, plain or gzipped; fields image u8 [h, w, 1] and label",
        {{"images", T::text, {}, "the image file"},
         {"labels", T::text, {}, "the label file"},
         {"class_count", T::integer, 10, "labels must be below", 1, 256}}},
       make_mnist},
      {{"cifar",
        "CIFAR-10 or CIFAR-100 binary files; fields image u8 [32, 32, 3] and label",
        {{"files", T::texts, {}, "the .bin files"}, {"class_count", T::integer, 10, "10 or 100", 10, 100}}},
       make_cifar},
      {{"npy",
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
