// SPDX-License-Identifier: Apache-2.0
// Sources made of others, and of a function.
#include <algorithm>
#include <cmath>
#include <utility>

#include "data/source/source.h"

namespace pelton::data {
namespace {

// The classes of sources whose samples meet: where two name a label, they give it the same name.
std::vector<std::string> joint_classes(const std::vector<std::unique_ptr<Source>>& sources) {
  std::vector<std::string> out;
  for (size_t k = 0; k < sources.size(); ++k) {
    std::vector<std::string> own = sources[k]->classes();
    const size_t both = std::min(out.size(), own.size());
    const auto [a, b] = std::ranges::mismatch(out.begin(), out.begin() + static_cast<ptrdiff_t>(both),
                                              own.begin(), own.begin() + static_cast<ptrdiff_t>(both));
    if (a != out.begin() + static_cast<ptrdiff_t>(both))
      fail(ErrorCode::usage,
           cat("label ", a - out.begin(), " is '", *a, "' in one part and '", *b, "' in part ", k + 1),
           "source", "give the parts the same 'classes'");
    if (own.size() > out.size()) out = std::move(own);
  }
  return out;
}

// Of all of them, if it is the same.
Dims joint_picture(const std::vector<std::unique_ptr<Source>>& sources, std::string_view field) {
  Dims out;
  for (const auto& s : sources) {
    const Dims own = s->picture_dims(field);
    if (own.empty() || (!out.empty() && own != out)) return {};
    out = own;
  }
  return out;
}

class Concatenated : public Source {
 public:
  explicit Concatenated(std::vector<std::unique_ptr<Source>> sources)
      : sources_(std::move(sources)), classes_(joint_classes(sources_)) {
    for (const auto& s : sources_) ends_.push_back((ends_.empty() ? 0 : ends_.back()) + s->size());
  }
  int64_t size() const override { return ends_.empty() ? 0 : ends_.back(); }
  Sample read(int64_t index) const override {
    const size_t at = static_cast<size_t>(std::ranges::upper_bound(ends_, index) - ends_.begin());
    Sample s = sources_[at]->read(index - (at ? ends_[at - 1] : 0));
    s.index = index;
    return s;
  }
  int64_t stored_bytes(int64_t index) const override {
    const size_t at = static_cast<size_t>(std::ranges::upper_bound(ends_, index) - ends_.begin());
    return sources_[at]->stored_bytes(index - (at ? ends_[at - 1] : 0));
  }
  std::vector<std::string> classes() const override { return classes_; }
  Dims picture_dims(std::string_view field) const override { return joint_picture(sources_, field); }
  std::string identity() const override {
    std::string out = "concat";
    for (const auto& s : sources_) append(out, cat("|", s->identity()));
    return out;
  }

 private:
  std::vector<std::unique_ptr<Source>> sources_;
  std::vector<std::string> classes_;
  std::vector<int64_t> ends_;
};

class Mixed : public Source {
 public:
  Mixed(std::vector<std::unique_ptr<Source>> sources, std::vector<double> weights, int64_t size,
        uint64_t seed)
      : sources_(std::move(sources)), classes_(joint_classes(sources_)), identity_(cat("mix ", size)) {
    double total = 0;
    for (double w : weights) append(identity_, cat(" ", w)), total += w;
    for (const auto& s : sources_) append(identity_, cat("|", s->identity()));
    if (!(total > 0 && std::isfinite(total)) || weights.size() != sources_.size() ||
        std::ranges::any_of(weights, [](double w) { return !(w >= 0); }))
      fail(ErrorCode::usage,
           cat("mix needs one weight of at least 0 for each of its ", sources_.size(),
               " sources, with a sum above 0"),
           "source");
    for (size_t i = 0; i < sources_.size(); ++i)
      if (weights[i] > 0 && sources_[i]->size() == 0)
        fail(ErrorCode::usage, cat("part ", i + 1, " of the mix has no samples"), "source");
    std::vector<int64_t> next(sources_.size(), 0);
    picks_.reserve(static_cast<size_t>(size));
    for (int64_t i = 0; i < size; ++i) {
      double u = Draw(seed, 0, static_cast<uint64_t>(i), 0x6d6978).uniform(0) * total;
      uint32_t at = 0;
      while (at + 1 < weights.size() && u >= weights[at]) u -= weights[at++];
      while (weights[at] == 0) --at;  // u landed on the upper end of the total
      picks_.emplace_back(at, next[at]++ % sources_[at]->size());
    }
  }
  int64_t size() const override { return static_cast<int64_t>(picks_.size()); }
  Sample read(int64_t index) const override {
    auto [at, inner] = picks_[static_cast<size_t>(index)];
    Sample s = sources_[at]->read(inner);
    s.index = index;
    return s;
  }
  int64_t stored_bytes(int64_t index) const override {
    auto [at, inner] = picks_[static_cast<size_t>(index)];
    return sources_[at]->stored_bytes(inner);
  }
  std::vector<std::string> classes() const override { return classes_; }
  Dims picture_dims(std::string_view field) const override { return joint_picture(sources_, field); }
  std::string identity() const override { return identity_; }

 private:
  std::vector<std::unique_ptr<Source>> sources_;
  std::vector<std::string> classes_;
  std::string identity_;
  std::vector<std::pair<uint32_t, int64_t>> picks_;
};

class FromFunction : public Source {
 public:
  FromFunction(int64_t size, std::function<Sample(int64_t)> f, std::string identity)
      : size_(size), read_(std::move(f)), identity_(std::move(identity)) {}
  int64_t size() const override { return size_; }
  Sample read(int64_t index) const override {
    Sample s;
    try {
      s = read_(index);
    } catch (const Error&) {
      throw;
    } catch (const std::bad_alloc&) {
      throw;
    } catch (const std::exception& e) {  // the caller's own: a bad sample as any other
      fail(ErrorCode::io, e.what(), cat("function ", identity_, " at ", index));
    }
    s.index = index;
    return s;
  }
  std::string identity() const override { return cat("function ", identity_, " ", size_); }

 private:
  int64_t size_;
  std::function<Sample(int64_t)> read_;
  std::string identity_;
};

}  // namespace

std::unique_ptr<Source> concatenate(std::vector<std::unique_ptr<Source>> sources) {
  return std::make_unique<Concatenated>(std::move(sources));
}
std::unique_ptr<Source> mix(std::vector<std::unique_ptr<Source>> sources, std::vector<double> weights,
                            int64_t size, uint64_t seed) {
  return std::make_unique<Mixed>(std::move(sources), std::move(weights), size, seed);
}
std::unique_ptr<Source> from_function(int64_t size, std::function<Sample(int64_t)> read,
                                      std::string identity) {
  return std::make_unique<FromFunction>(size, std::move(read), std::move(identity));
}

}  // namespace pelton::data
