// SPDX-License-Identifier: Apache-2.0
// Stages on fields that are no pictures: labels, numbers, and whatever else a source gives.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <unordered_map>

#include "data/batch_builder.h"
#include "data/ops/stage.h"

namespace pelton::data {
namespace {

StageFn make_one_hot(const Args& a, Match) {
  return [field = a.text("field"), classes = a.integer("classes"), smoothing = a.number("smoothing")](
             Sample& s, const Draw&) {
    const Tensor& given = s.at(field);
    if (given.count() != 1 || !is_int(given.dtype()))
      fail(ErrorCode::bad_type, cat("'", field, "' is ", given, ", not one whole number"));
    const int64_t label = given.get_int(0);
    if (label < 0 || label >= classes)
      fail(ErrorCode::bad_format, cat("label ", label, " is outside 0 .. ", classes - 1));
    Tensor t = Tensor::full(DType::f32, {classes}, smoothing / static_cast<double>(classes));
    t.as_mutable<float>()[label] += static_cast<float>(1 - smoothing);
    s.set(field, std::move(t));
  };
}

StageFn make_cast(const Args& a, Match) {
  auto dtype = dtype_from_name(a.text("dtype"));
  if (!dtype || bits(*dtype) < 8)
    fail(ErrorCode::usage, cat("'dtype' = \"", a.text("dtype"), "\" is not an element type"), a.where());
  return [field = a.text("field"), dtype = *dtype, scale = a.number("scale")](Sample& s, const Draw&) {
    Tensor& t = s.at(field);
    std::vector<double> v = to_doubles(t);
    for (double& x : v) x *= scale;
    t = from_doubles(dtype, t.dims(), v);
  };
}

// Whole numbers by a table.
StageFn make_lookup(const Args& a, Match) {
  const std::vector<double>&keys = a.numbers("keys"), &values = a.numbers("values");
  if (keys.size() != values.size())
    fail(ErrorCode::usage, cat("'keys' has ", keys.size(), " numbers, 'values' ", values.size()), a.where());
  std::unordered_map<int64_t, double> table;
  for (double k : keys)
    if (k != std::floor(k) || std::fabs(k) > 0x1p53)
      fail(ErrorCode::usage, cat("'keys' holds ", k, ", not a whole number"), a.where());
  for (size_t i = 0; i < keys.size(); ++i)
    if (!table.emplace(static_cast<int64_t>(keys[i]), values[i]).second)
      fail(ErrorCode::usage, cat("'keys' holds ", keys[i], " twice"), a.where());
  auto integer = [](double v) { return v == std::floor(v) && std::fabs(v) <= 0x1p53; };
  const bool whole = std::ranges::all_of(values, integer) && (!a.has("other") || integer(a.number("other")));
  return [field = a.text("field"), table, whole,
          other = a.has("other") ? std::optional(a.number("other")) : std::nullopt](Sample& s, const Draw&) {
    Tensor& t = s.at(field);
    if (!is_int(t.dtype())) fail(ErrorCode::bad_type, cat("'", field, "' is ", t, ", not whole numbers"));
    std::vector<double> out;
    for (int64_t key : to_ints(t)) {
      const auto at = table.find(key);
      if (at == table.end() && !other)
        fail(ErrorCode::bad_format, cat("'", field, "' holds ", key, ", which 'keys' does not"));
      out.push_back(at == table.end() ? *other : at->second);
    }
    t = from_doubles(whole ? DType::i64 : DType::f32, t.dims(), out);
  };
}

// A part of one axis.
StageFn make_slice(const Args& a, Match) {
  return [field = a.text("field"), axis = a.integer("axis"), size = a.integer("size"),
          start = Drawn(a, "start")](Sample& s, const Draw& d) {
    Tensor& t = s.at(field);
    if (bits(t.dtype()) < 8) fail(ErrorCode::bad_type, cat("'", field, "' is ", t, ", not whole bytes"));
    const int64_t from = static_cast<int64_t>(start(d));
    if (axis >= t.rank() || from < 0 || size > t.dims()[static_cast<size_t>(axis)] - from)
      fail(ErrorCode::bad_shape,
           cat("'", field, "' is ", t, ", which has no part ", from, " .. ",
               static_cast<uint64_t>(from) + static_cast<uint64_t>(size) - 1, " of axis ", axis));
    Dims dims = t.dims();
    dims[static_cast<size_t>(axis)] = size;
    Tensor out(t.dtype(), dims);
    int64_t inner = bits(t.dtype()) / 8, outer = 1;
    for (int64_t k = 0; k < t.rank(); ++k)
      (k < axis ? outer : inner) *= k == axis ? 1 : dims[static_cast<size_t>(k)];
    const int64_t have = t.dims()[static_cast<size_t>(axis)];
    const auto* src = static_cast<const uint8_t*>(t.data()) + from * inner;
    auto* dst = static_cast<uint8_t*>(out.mutable_data());
    for (int64_t k = 0; k < outer; ++k)
      std::memcpy(dst + k * size * inner, src + k * have * inner, static_cast<size_t>(size * inner));
    t = std::move(out);
  };
}

// Fields of one shape become one with a new first axis.
StageFn make_stack(const Args& a, Match) {
  return [fields = a.texts("fields"), into = a.text("into")](Sample& s, const Draw&) {
    const Tensor first = s.at(fields.at(0));
    Dims dims = first.dims();
    dims.insert(dims.begin(), static_cast<int64_t>(fields.size()));
    Tensor out(first.dtype(), dims);
    auto* to = static_cast<uint8_t*>(out.mutable_data());
    for (const std::string& name : fields) {
      const Tensor& t = s.at(name);
      if (t.dtype() != first.dtype() || t.dims() != first.dims() || t.dtype() == DType::string)
        fail(ErrorCode::bad_shape, cat("'", name, "' is ", t, ", '", fields[0], "' is ", first));
      std::memcpy(to, t.data(), static_cast<size_t>(t.bytes()));
      to += t.bytes();
    }
    for (const std::string& name : fields) s.erase(name);
    s.set(into, std::move(out));
  };
}

// Samples of different sizes: what a batch adds at their ends, and to which multiple.
BatchFn make_pad_longest(const Args& a) {
  return [field = a.text("field"), value = a.number("value"), multiple = a.integer("multiple")](
             Batch& b, const std::function<Draw(int64_t)>&) {
    const Tensor t = b.at(field);
    if (t.dtype() == DType::string || bits(t.dtype()) < 8 || t.rank() < 2)
      fail(ErrorCode::bad_type, cat("'", field, "' is ", t, ", not an array a sample"), "pad_longest");
    const Dims have(t.dims().begin() + 1, t.dims().end());
    Dims dims = have;
    for (int64_t& d : dims) d = (d + multiple - 1) / multiple * multiple;
    const std::string size_name = cat(field, ".size");
    if (!b.find(size_name)) {  // all of them are as large as the batch
      std::vector<int64_t> sizes;
      for (int64_t i = 0; i < b.count(); ++i) sizes.insert(sizes.end(), have.begin(), have.end());
      b.fields.emplace_back(size_name, Tensor::from<int64_t>({b.count(), std::ssize(have)}, sizes));
    }
    const Tensor sizes = b.at(size_name);
    Dims all = dims;
    all.insert(all.begin(), b.count());
    Tensor out = Tensor::full(t.dtype(), all, value);
    const size_t element = static_cast<size_t>(bits(t.dtype()) / 8);
    const int64_t rank = std::ssize(have);
    for (int64_t i = 0; i < b.count(); ++i) {
      const Dims block(sizes.as<int64_t>() + i * rank, sizes.as<int64_t>() + (i + 1) * rank);
      copy_block(static_cast<const uint8_t*>(t.data()) + i * (t.bytes() / b.count()), have,
                 static_cast<uint8_t*>(out.mutable_data()) + i * (out.bytes() / b.count()), dims, block,
                 element);
    }
    std::ranges::find(b.fields, field, &std::pair<std::string, Tensor>::first)->second = std::move(out);
  };
}

}  // namespace

std::vector<StageKind> field_stage_kinds() {
  using T = OptionType;
  return {
      {{"one_hot",
        "an integer label becomes f32 [classes]",
        {{"field", T::text, "label", "the label"},
         {"classes", T::integer, {}, "number of classes", 1, 1e7},
         {"smoothing", T::number, 0.0, "share spread evenly over all classes", 0, 1}}},
       make_one_hot},
      {{"cast",
        "another element type, after multiplying by scale",
        {{"field", T::text, {}, "the field"},
         {"dtype", T::text, {}, "element type"},
         {"scale", T::number, 1.0, "factor"}}},
       make_cast},
      {{"lookup",
        "whole numbers by a table; i64 when all values are whole, else f32",
        {{"field", T::text, "label", "the field"},
         {"keys", T::numbers, {}, "what is looked up"},
         {"values", T::numbers, {}, "what each becomes"},
         {"other",
          T::number,
          {},
          "what numbers that are no key become (default: an error)",
          kAny,
          kNone,
          {},
          false,
          true}}},
       make_lookup},
      {{"slice",
        "a part of one axis",
        {{"field", T::text, {}, "the field"},
         {"axis", T::integer, 0, "the axis", 0, 15},
         {"start", T::integer, 0, "first element", 0, kNone, {}, true},
         {"size", T::integer, {}, "elements", 1}}},
       make_slice},
      {{"stack",
        "fields of one type and shape become one field with a new first axis",
        {{"fields", T::texts, {}, "their names"}, {"into", T::text, {}, "name of the new one"}}},
       make_stack},
      {{"cache",
        "keeps samples as they are here (files before decode, pixels behind it) in memory for later epochs; "
        "nothing before it may be random",
        {{"memory_mib", T::integer, 1024, "samples that no longer fit are made again every time", 1, 1 << 24},
         {"device",
          T::text,
          "cpu",
          "gpu: pixels in so much memory of the GPU that takes the batches, which does all that comes behind",
          kAny,
          kNone,
          {"cpu", "gpu"}}}},
       {}},
      {{"pad_longest",
        "samples of different sizes in a batch: what their ends are filled with; adds the field NAME.size",
        {{"field", T::text, {}, "the field"},
         {"value", T::number, 0.0, "what is filled in"},
         {"multiple", T::integer, 1, "sizes grow to a multiple of this", 1, 1 << 20}}},
       {},
       make_pad_longest}};
}

}  // namespace pelton::data
