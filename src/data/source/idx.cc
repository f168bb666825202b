// SPDX-License-Identifier: Apache-2.0
// IDX files (MNIST) and CIFAR binaries.
#include <cstring>

#include "data/source/arrays.h"

namespace pelton::data {
namespace {

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

}  // namespace

std::vector<SourceKind> idx_source_kinds() {
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
       make_cifar}};
}

}  // namespace pelton::data
