// SPDX-License-Identifier: Apache-2.0
// CSV: one sample a line. Fields may be quoted ("" for a quote); quoted fields may hold commas and line ends.
#include <algorithm>
#include <charconv>
#include <cmath>

#include "base/hash.h"
#include "data/source/source.h"

namespace pelton::data {
namespace {

// Splits one record at `at`, which moves past it.
std::vector<std::string> record(const std::string& text, size_t& at, char separator,
                                const std::string& where) {
  std::vector<std::string> out(1);
  bool quoted = false;
  for (; at < text.size(); ++at) {
    const char c = text[at];
    if (quoted) {
      if (c != '"')
        out.back().push_back(c);
      else if (at + 1 < text.size() && text[at + 1] == '"')
        out.back().push_back('"'), ++at;
      else
        quoted = false;
    } else if (c == '"' && out.back().empty()) {
      quoted = true;
    } else if (c == separator) {
      out.emplace_back();
    } else if (c == '\n') {
      ++at;
      break;
    } else if (c != '\r') {
      out.back().push_back(c);
    }
  }
  if (quoted) fail(ErrorCode::bad_format, "a quote is never closed", where);
  return out;
}

class Csv : public Source {
 public:
  Csv(const Args& a, const std::string& base)
      : path_(below(base, a.text("path"))), text_(expanded(whole_text(path_), path_)) {
    separator_ = a.text("separator").size() == 1 ? a.text("separator")[0] : '\t';
    missing_ = a.text("missing") == "nan" ? std::nan("") : 0;
    strict_ = a.text("missing") == "error";
    size_t at = text_.starts_with("\xef\xbb\xbf") ? 3 : 0;
    if (a.boolean("header")) header_ = record(text_, at, separator_, path_);
    while (at < text_.size()) {
      const size_t start = at;
      std::vector<std::string> cells = record(text_, at, separator_, cat(path_, " at byte ", start));
      if (cells.size() == 1 && cells[0].empty()) continue;  // blank line
      if (width_ == 0) width_ = cells.size();
      if (cells.size() != width_)
        fail(ErrorCode::bad_format,
             cat("the record has ", cells.size(), " cells, the first one has ", width_),
             cat(path_, " at byte ", start));
      starts_.push_back(start);
    }
    if (starts_.empty()) fail(ErrorCode::not_found, "the file holds no records", path_);
    if (!header_.empty() && header_.size() != width_)
      fail(ErrorCode::bad_format,
           cat("the header names ", header_.size(), " columns, the records have ", width_), path_);
    if (a.has("label")) label_ = static_cast<int>(column(a.text("label")));
    for (const auto& name : a.texts("columns")) columns_.push_back(column(name));
    if (a.texts("columns").empty())
      for (size_t i = 0; i < width_; ++i)
        if (static_cast<int>(i) != label_) columns_.push_back(i);
  }
  int64_t size() const override { return static_cast<int64_t>(starts_.size()); }
  Sample read(int64_t index) const override {
    size_t at = starts_[static_cast<size_t>(index)];
    Sample s;
    s.index = index;
    s.origin = {path_, "", static_cast<int64_t>(at)};
    std::vector<std::string> cells = record(text_, at, separator_, path_);
    std::vector<float> values;
    for (size_t c : columns_) values.push_back(static_cast<float>(number(cells[c], c, s.origin)));
    s.set("data", Tensor::from<float>({static_cast<int64_t>(values.size())}, values));
    if (label_ >= 0) {
      const size_t c = static_cast<size_t>(label_);
      const double v = number(cells[c], c, s.origin);
      if (v == std::floor(v) && std::fabs(v) < 0x1p53)
        s.set("label", label_tensor(static_cast<int64_t>(v)));
      else
        s.set("label", Tensor::scalar(static_cast<float>(v)));
    }
    return s;
  }
  std::string identity() const override { return cat("csv ", checksum(text_).str()); }

 private:
  size_t column(const std::string& name) const {
    if (auto at = std::ranges::find(header_, name); at != header_.end())
      return static_cast<size_t>(at - header_.begin());
    size_t number = 0;
    auto r = std::from_chars(name.data(), name.data() + name.size(), number);
    if (r.ec == std::errc() && r.ptr == name.data() + name.size() && number < width_) return number;
    std::string near = nearest(name, header_);
    fail(ErrorCode::bad_name, cat("there is no column '", name, "' among ", width_), path_,
         near.empty() ? "" : cat("did you mean '", near, "'?"));
  }
  double number(std::string_view cell, size_t c, const Origin& origin) const {
    while (!cell.empty() && cell.front() == ' ') cell.remove_prefix(1);
    while (!cell.empty() && cell.back() == ' ') cell.remove_suffix(1);
    if (cell.empty() && !strict_) return missing_;
    double v = 0;
    auto r = std::from_chars(cell.data(), cell.data() + cell.size(), v);
    if (r.ec != std::errc() || r.ptr != cell.data() + cell.size())
      fail(ErrorCode::bad_format,
           cat("'", cell, "' in column ", header_.empty() ? cat(c) : header_[c], " is not a number"),
           origin.str(), "leave the column out with 'columns'");
    return v;
  }

  std::string path_, text_;
  char separator_ = ',';
  double missing_ = 0;
  bool strict_ = false;
  std::vector<std::string> header_;
  size_t width_ = 0;
  std::vector<size_t> starts_, columns_;
  int label_ = -1;
};

}  // namespace

std::vector<SourceKind> table_source_kinds() {
  using T = OptionType;
  return {
      {{"csv",
        "numeric columns of a CSV file, plain or compressed; fields data f32 [columns] and label",
        {{"path", T::text, {}, "the file"},
         {"header", T::boolean, true, "the first record names the columns"},
         {"columns",
          T::texts,
          {},
          "names or numbers (from 0) of the columns to take, instead of all",
          kAny,
          kNone,
          {},
          false,
          true},
         {"label", T::text, {}, "name or number of the label's column", kAny, kNone, {}, false, true},
         {"separator", T::text, ",", "one character; \"tab\" for tabs"},
         {"missing", T::text, "nan", "what an empty cell becomes", kAny, kNone, {"nan", "zero", "error"}}}},
       [](const Args& a, const std::string& base) -> std::unique_ptr<Source> {
         return std::make_unique<Csv>(a, base);
       }}};
}

}  // namespace pelton::data
