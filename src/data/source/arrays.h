// SPDX-License-Identifier: Apache-2.0
// Fields that all have the sample as their first dimension, in memory.
#pragma once

#include "data/source/source.h"

namespace pelton::data {

Tensor row(const Tensor& all, int64_t index);     // a view, which keeps `all`
std::vector<std::string> digit_names(int64_t n);  // "0", "1" and so on

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
  Dims picture_dims(std::string_view field) const override {
    for (const auto& [name, all] : fields_)
      if (name == field && all.dtype() == DType::u8 && all.rank() == 4)
        return {all.dims()[1], all.dims()[2], all.dims()[3]};
    return {};
  }
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

}  // namespace pelton::data
