// SPDX-License-Identifier: Apache-2.0
#include "serve/loadtest/inputs.h"

#include <algorithm>
#include <random>

#include "base/error.h"
#include "base/file.h"

namespace pelton::serve {
namespace {

constexpr int64_t kMaxElements = int64_t{1} << 31;
constexpr size_t kMaxFile = size_t{1} << 31;

Dims shape_of(const LoadOptions& o, const TargetModel& model, const InputSpec& spec) {
  Dims dims = spec.dims;
  const size_t lead = model.batches ? 1 : 0;
  if (const auto given = o.shapes.find(spec.name); given != o.shapes.end()) {
    bool fits = given->second.size() + lead == spec.dims.size();
    for (size_t i = 0; fits && i < given->second.size(); ++i)
      fits = spec.dims[lead + i] < 0 || spec.dims[lead + i] == given->second[i];
    if (!fits)
      fail(ErrorCode::usage,
           cat("--shape ", spec.name, "=", given->second, " does not fit the model's ",
               Dims(spec.dims.begin() + static_cast<std::ptrdiff_t>(lead), spec.dims.end())));
    std::copy(given->second.begin(), given->second.end(), dims.begin() + static_cast<std::ptrdiff_t>(lead));
  }
  if (lead) dims.at(0) = o.batch;
  for (int64_t d : dims)
    if (d < 0)
      fail(ErrorCode::usage, cat("input '", spec.name, "' has the open shape ", spec.dims), "",
           cat("give it with --shape ", spec.name, "=1x3"));
  return dims;
}

// BYTES: the whole file is the one element, or each line is one. Else elements as they lie in memory. A file
// for one row stands for every row.
std::string read_input(const std::string& path, const InputSpec& spec, int64_t rows, int64_t count) {
  const std::string file = read_file(path, kMaxFile);
  std::vector<std::string_view> parts;
  size_t wanted = static_cast<size_t>(count), each = 1;
  std::string out;
  if (spec.dtype == DType::string) {
    if (count == rows) {
      parts.push_back(file);
    } else {
      for (size_t at = 0; at < file.size();) {
        const size_t end = std::min(file.find('\n', at), file.size());
        parts.push_back(std::string_view(file).substr(at, end - at));
        at = end + 1;
      }
    }
  } else {
    wanted = static_cast<size_t>(byte_size(spec.dtype, count));
    each = file.size();
    parts.push_back(file);
  }
  const size_t have = parts.size() * each, copies = have && wanted % have == 0 ? wanted / have : 0;
  if (copies != 1 && copies != static_cast<size_t>(rows))
    fail(ErrorCode::usage,
         cat("input '", spec.name, "' takes ", wanted, spec.dtype == DType::string ? " lines" : " bytes",
             ", the file has ", have),
         path);
  for (size_t copy = 0; copy < copies; ++copy)
    for (const std::string_view p : parts) {
      if (spec.dtype == DType::string)
        append_bytes_element(out, p);
      else
        out += p;
    }
  return out;
}

std::string random_input(DType dtype, int64_t count, std::mt19937_64& random) {
  std::string bytes;
  if (dtype == DType::string) {
    for (int64_t i = 0; i < count; ++i) append_bytes_element(bytes, cat(random() % 1000));
    return bytes;
  }
  bytes.resize(static_cast<size_t>(byte_size(dtype, count)));
  const size_t width = static_cast<size_t>(bits(dtype)) / 8;
  // The top byte stays small, so that every type holds moderate, finite numbers.
  for (size_t i = 0; i < bytes.size(); ++i)
    bytes[i] = static_cast<char>(random() & (dtype == DType::boolean ? 1u : (i + 1) % width ? 0xffu : 0x3fu));
  return bytes;
}

std::string zero_input(DType dtype, int64_t count) {
  std::string bytes;
  if (dtype != DType::string) return std::string(static_cast<size_t>(byte_size(dtype, count)), '\0');
  for (int64_t i = 0; i < count; ++i) append_bytes_element(bytes, "");
  return bytes;
}

// A name that a flag gives and the model does not have is a mistake.
template <class Map>
void check_names(const Map& named, const TargetModel& model, std::string_view flag) {
  for (const auto& [name, unused] : named) {
    if (std::any_of(model.inputs.begin(), model.inputs.end(),
                    [&](const InputSpec& i) { return i.name == name; }))
      continue;
    std::string known;
    for (const InputSpec& i : model.inputs) known += cat(known.empty() ? "" : ", ", i.name);
    fail(ErrorCode::usage, cat(flag, " names '", name, "', which is no input of the model"), "",
         cat("its inputs: ", known));
  }
}

}  // namespace

std::vector<TensorValue> make_load_inputs(const LoadOptions& o, const TargetModel& model) {
  check_names(o.shapes, model, "--shape");
  check_names(o.files, model, "--input");
  if (o.batch > 1 && !model.batches)
    fail(ErrorCode::usage, cat("--batch is ", o.batch, ", but model '", o.model, "' does not batch"));
  std::vector<TensorValue> inputs;
  std::mt19937_64 random(o.seed);
  for (const InputSpec& spec : model.inputs) {
    TensorValue t{spec.name, spec.dtype, shape_of(o, model, spec), {}};
    const auto count = checked_count(t.dims);
    if (!count || *count > kMaxElements)
      fail(ErrorCode::limit, cat("input '", spec.name, "' of shape ", t.dims, " is too large"));
    if (const auto file = o.files.find(spec.name); file != o.files.end())
      t.data = Blob::from(read_input(file->second, spec, model.batches ? o.batch : 1, *count));
    else
      t.data =
          Blob::from(o.zeros ? zero_input(spec.dtype, *count) : random_input(spec.dtype, *count, random));
    inputs.push_back(std::move(t));
  }
  return inputs;
}

}  // namespace pelton::serve
