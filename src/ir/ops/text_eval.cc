// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <map>
#include <set>

#include "ir/ops/common.h"
#include "ir/ops/regex.h"
#include "ir/ops/text.h"

namespace pelton::ir {

void eval_string_concat(EvalContext& c) {
  const Tensor &a = c.in(0), &b = c.in(1);
  Dims dims = broadcast_dims({a.dims(), b.dims()});
  Tensor out(DType::string, dims);
  Dims a_strides = row_major_strides(a.dims()), b_strides = row_major_strides(b.dims());
  size_t i = 0;
  for_each_index(dims, [&](const Dims& index) {
    auto at_a = static_cast<size_t>(broadcast_offset(index, a.dims(), a_strides));
    auto at_b = static_cast<size_t>(broadcast_offset(index, b.dims(), b_strides));
    out.mutable_strings()[i++] = a.strings()[at_a] + b.strings()[at_b];
  });
  c.out(0, std::move(out));
}

namespace {

bool is_space(char c) {
  return c == ' ' || (c >= '\t' && c <= '\r');
}

// At most `most` splits (negative: any number). Without a delimiter runs of white space separate, and ends
// are trimmed.
std::vector<std::string> split(const std::string& s, const std::string& delimiter, int64_t most) {
  std::vector<std::string> out;
  size_t at = 0;
  if (!delimiter.empty()) {
    for (;;) {
      size_t end = most < 0 || static_cast<int64_t>(out.size()) < most ? s.find(delimiter, at) : s.npos;
      out.push_back(s.substr(at, end == s.npos ? s.npos : end - at));
      if (end == s.npos) return out;
      at = end + delimiter.size();
    }
  }
  for (;;) {
    while (at < s.size() && is_space(s[at])) ++at;
    if (at == s.size()) return out;
    size_t end = at;
    if (most >= 0 && static_cast<int64_t>(out.size()) >= most)
      end = s.size();  // the rest as it is
    else
      while (end < s.size() && !is_space(s[end])) ++end;
    out.push_back(s.substr(at, end - at));
    at = end;
  }
}

// Case of A to Z and of the Latin-1, Greek and Cyrillic letters that are two bytes of UTF-8 and a fixed
// distance from their other case; other characters stay.
std::string with_case(const std::string& s, bool upper) {
  std::string out;
  for (size_t i = 0; i < s.size(); ++i) {
    auto c = static_cast<unsigned char>(s[i]);
    if (c < 0x80) {
      bool change = upper ? c >= 'a' && c <= 'z' : c >= 'A' && c <= 'Z';
      out += static_cast<char>(change ? c ^ 0x20 : c);
      continue;
    }
    auto second = i + 1 < s.size() ? static_cast<unsigned char>(s[i + 1]) : 0u;
    if ((c & 0xE0) != 0xC0 || (second & 0xC0) != 0x80) {
      out += s[i];
      continue;
    }
    uint32_t v = ((c & 0x1Fu) << 6) | (second & 0x3Fu);
    auto between = [&](uint32_t low, uint32_t high) { return v >= low && v <= high; };
    if (!upper && ((between(0xC0, 0xDE) && v != 0xD7) || between(0x391, 0x3A9) || between(0x410, 0x42F)))
      v += 0x20;
    else if (upper && ((between(0xE0, 0xFE) && v != 0xF7) || (between(0x3B1, 0x3C9) && v != 0x3C2) ||
                       between(0x430, 0x44F)))
      v -= 0x20;
    else if (!upper && between(0x400, 0x40F))
      v += 0x50;
    else if (upper && between(0x450, 0x45F))
      v -= 0x50;
    out += static_cast<char>(0xC0 | (v >> 6));
    out += static_cast<char>(0x80 | (v & 0x3F));
    ++i;
  }
  return out;
}

}  // namespace

void eval_string_split(EvalContext& c) {
  const Tensor& x = c.in(0);
  std::vector<std::vector<std::string>> pieces;
  size_t longest = 0;
  for (const std::string& s : x.strings()) {
    pieces.push_back(split(s, c.node.get_text("delimiter"), c.node.get_int("max_splits")));
    longest = std::max(longest, pieces.back().size());
  }
  Dims dims = x.dims();
  dims.push_back(static_cast<int64_t>(longest));
  Tensor out(DType::string, dims), counts(DType::i64, x.dims());
  for (size_t i = 0; i < pieces.size(); ++i) {
    counts.set_int(static_cast<int64_t>(i), static_cast<int64_t>(pieces[i].size()));
    for (size_t k = 0; k < pieces[i].size(); ++k) out.mutable_strings()[i * longest + k] = pieces[i][k];
  }
  c.out(0, std::move(out));
  c.out(1, std::move(counts));
}

void eval_string_normalizer(EvalContext& c) {
  const Tensor& x = c.in(0);
  if (x.rank() == 2 && x.dims()[0] != 1)
    c.refuse(ErrorCode::bad_shape, cat("needs [C] or [1,C], not ", x.str()));
  const std::string& to = c.node.get_text("case");
  bool sensitive = c.node.get_bool("case_sensitive"), changes = to != "none";
  std::set<std::string> stop;
  for (const std::string& s : c.node.get_strings("stop_words"))
    stop.insert(sensitive ? s : with_case(s, to == "upper"));
  std::vector<std::string> kept;
  for (const std::string& s : x.strings()) {
    if (stop.count(sensitive ? s : with_case(s, to == "upper"))) continue;
    kept.push_back(changes ? with_case(s, to == "upper") : s);
  }
  if (kept.empty()) kept.emplace_back();
  Dims dims{static_cast<int64_t>(kept.size())};
  if (x.rank() == 2) dims.insert(dims.begin(), 1);
  c.out(0, Tensor::of_strings(dims, std::move(kept)));
}

void eval_regex_full_match(EvalContext& c) {
  Regex regex(c.node.get_text("pattern"));
  const Tensor& x = c.in(0);
  Tensor out = Tensor::zeros(DType::boolean, x.dims());
  for (size_t i = 0; i < x.strings().size(); ++i)
    out.set_int(static_cast<int64_t>(i), regex.full_match(x.strings()[i]));
  c.out(0, std::move(out));
}

// n-grams of `min_length` to `max_length` items, up to `max_skip` items apart. Gram g of the pool (those of
// length 1 first, then 2, ...) counts in columns[g]; weights scale by gram. Single items count once whatever
// the skip.
void eval_tfidf(EvalContext& c) {
  const Node& n = c.node;
  const Tensor &x = c.in(0), &pool = n.get_tensor("pool");
  const Ints &starts = n.get_ints("starts"), &columns = n.get_ints("columns");
  const Floats& weights = n.get_floats("weights");
  int64_t least = n.get_int("min_length"), most = n.get_int("max_length"), skip = n.get_int("max_skip");
  auto item = [](const Tensor& t, int64_t i) {
    return t.dtype() == DType::string ? t.strings()[static_cast<size_t>(i)] : cat(t.get_int(i));
  };
  using Gram = std::vector<std::string>;
  std::map<Gram, size_t> grams;
  size_t gram = 0;
  for (size_t k = 0; k < starts.size(); ++k) {
    int64_t end = k + 1 < starts.size() ? starts[k + 1] : pool.count();
    auto length = static_cast<int64_t>(k + 1);
    for (int64_t at = starts[k]; at + length <= end; at += length, ++gram) {
      if (length < least || length > most) continue;
      Gram g;
      for (int64_t i = 0; i < length; ++i) g.push_back(item(pool, at + i));
      grams.emplace(std::move(g), gram);
    }
  }
  int64_t width = *std::max_element(columns.begin(), columns.end()) + 1;
  int64_t rows = x.rank() == 2 ? x.dims()[0] : 1, items = x.dims().back();
  std::vector<double> count(static_cast<size_t>(rows * width), 0), weight(static_cast<size_t>(width), 1);
  for (size_t i = 0; i < weights.size(); ++i) weight[static_cast<size_t>(columns[i])] = weights[i];
  // Longer grams than the pool's match nothing, and one whose items lie further apart does not fit in a row.
  most = std::min({most, items, static_cast<int64_t>(starts.size())});
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t length = least; length <= most; ++length) {
      const int64_t widest = length == 1 ? 1 : (items - 1) / (length - 1);
      for (int64_t step = 1; step <= widest && step - 1 <= skip; ++step)
        for (int64_t at = 0; at + (length - 1) * step < items; ++at) {
          Gram g;
          for (int64_t i = 0; i < length; ++i) g.push_back(item(x, r * items + at + i * step));
          if (auto found = grams.find(g); found != grams.end())
            count[static_cast<size_t>(r * width + columns[found->second])] += 1;
        }
    }
  const std::string& mode = n.get_text("mode");
  for (size_t i = 0; i < count.size(); ++i) {
    double w = weight[i % static_cast<size_t>(width)];
    if (mode == "idf") count[i] = count[i] > 0 ? w : 0;
    if (mode == "tfidf") count[i] *= w;
  }
  Dims dims{width};
  if (x.rank() == 2) dims.insert(dims.begin(), rows);
  c.out(0, from_doubles(DType::f32, dims, count));
}

// A NaN key matches NaN.
void eval_label_encoder(EvalContext& c) {
  const Tensor &x = c.in(0), &keys = c.node.get_tensor("keys"), &values = c.node.get_tensor("values");
  const Tensor& otherwise = c.node.get_tensor("otherwise");
  auto text = [](const Tensor& t, int64_t i) {
    if (t.dtype() == DType::string) return t.strings()[static_cast<size_t>(i)];
    return is_float(t.dtype()) ? cat(t.get_double(i) + 0.0) : cat(t.get_int(i));  // -0 is 0
  };
  std::map<std::string, int64_t> index;
  for (int64_t i = 0; i < keys.count(); ++i) index.emplace(text(keys, i), i);
  DType t = values.dtype();
  Tensor out = t == DType::string ? Tensor(t, x.dims()) : Tensor::zeros(t, x.dims());
  for (int64_t i = 0; i < x.count(); ++i) {
    auto found = index.find(text(x, i));
    if (found == index.end())
      copy_element(out, i, otherwise, 0);
    else
      copy_element(out, i, values, found->second);
  }
  c.out(0, std::move(out));
}

}  // namespace pelton::ir
