// SPDX-License-Identifier: Apache-2.0
#include "cli/inputs.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "base/philox.h"
#include "cli/command.h"
#include "cli/pb_value.h"
#include "passes/specialise.h"
#include "tensor/npy.h"

namespace pelton::cli {

using ir::Graph;
using ir::HostValue;
using ir::Type;

namespace {

std::string input_names(const Graph& g) {
  std::string out;
  for (ir::ValueId v : g.inputs) append(out, cat(out.empty() ? "" : ", ", g[v].name));
  return out.empty() ? "none" : out;
}

ir::ValueId find_input(const Graph& g, const std::string& name, std::string_view flag) {
  for (ir::ValueId v : g.inputs)
    if (g[v].name == name) return v;
  fail(ErrorCode::bad_name, cat("there is no input '", name, "'"), std::string(flag),
       cat("the inputs are ", input_names(g)));
}

HostValue load_value(const std::string& path, const Type& type) {
  bool npy = path.size() > 4 && path.compare(path.size() - 4, 4, ".npy") == 0;
  const bool wraps = type.kind == ir::TypeKind::optional && type.element->is_tensor();
  if (npy && wraps) return HostValue::optional({load_npy(path, type.element->dtype)});
  if (npy && !type.is_tensor())
    fail(ErrorCode::bad_type, cat("a .npy file is one tensor, the input is ", type.str()), path,
         "give a .pb file that holds a SequenceProto or an OptionalProto");
  if (npy) return load_npy(path, type.dtype);
  return load_pb(path, type);
}

}  // namespace

std::vector<HostValue> load_inputs(const Graph& g, const std::map<std::string, std::string>& files,
                                   const std::map<std::string, HostValue>& values) {
  for (const auto& [name, path] : files) find_input(g, name, "--input");
  std::vector<HostValue> out;
  for (ir::ValueId v : g.inputs) {
    if (auto ready = values.find(g[v].name); ready != values.end()) {
      out.push_back(ready->second);
      continue;
    }
    auto it = files.find(g[v].name);
    if (it == files.end())
      fail(ErrorCode::usage, cat("input '", g[v].name, "' (", g.type(v).str(), ") has no value"), "",
           cat("give --input ", g[v].name, "=FILE.npy"));
    out.push_back(
        with_place(cat("input '", g[v].name, "'"), [&] { return load_value(it->second, g.type(v)); }));
  }
  return out;
}

void require_dims(const Graph& g, const std::vector<HostValue>& values,
                  const std::map<std::string, std::string>& shapes) {
  for (const auto& [name, text] : shapes) {
    const ir::ValueId wanted = find_input(g, name, "--shape");
    if (text.find(':') != text.npos) continue;
    const Dims dims = parse_dims(text);
    for (size_t i = 0; i < values.size(); ++i)
      if (g.inputs[i] == wanted && values[i].tensor.defined() && values[i].tensor.dims() != dims)
        fail(ErrorCode::bad_shape,
             cat("the value of input '", name, "' is ", dims_text(values[i].tensor.dims()), ", not ", text),
             "--shape", "give a value of this shape, or leave out --shape");
  }
}

std::vector<Dims> choose_dims(const Graph& g, const std::map<std::string, std::string>& shapes, int64_t batch,
                              const std::map<std::string, int64_t>& optimum) {
  SymbolValues sizes;
  auto bind = [&](ir::ValueId v, const Dims& dims, std::string_view flag) {
    const Type& type = g.type(v);
    std::string where = cat(flag, " ", g[v].name, "=", dims_text(dims));
    if (type.ranked && dims.size() != type.shape.size())
      fail(ErrorCode::bad_shape, cat("the input has rank ", type.rank(), " (", type.str(), ")"), where);
    for (size_t i = 0; i < dims.size() && type.ranked; ++i) {
      if (auto s = type.shape[i].as_symbol()) {
        auto [it, fresh] = sizes.emplace(*s, dims[i]);
        if (!fresh && it->second != dims[i])
          fail(ErrorCode::bad_shape, cat("'", *s, "' is ", it->second, " already, not ", dims[i]), where);
      } else if (type.shape[i].is_const() && type.shape[i].value() != dims[i]) {
        fail(ErrorCode::bad_shape,
             cat("axis ", i, " of the input is ", type.shape[i].value(), ", not ", dims[i]), where);
      }
    }
  };
  for (const auto& [name, text] : shapes) {
    ir::ValueId v = find_input(g, name, "--shape");
    if (text.find(':') == text.npos) bind(v, parse_dims(text), "--shape");
  }
  if (batch > 0)
    for (ir::ValueId v : g.inputs) {
      const Type& type = g.type(v);
      if (!type.is_tensor() || type.shape.empty()) continue;
      if (auto s = type.shape[0].as_symbol())
        sizes.emplace(*s, batch);
      else if (type.shape[0].is_const() && type.shape[0].value() != batch)
        fail(ErrorCode::bad_shape,
             cat("the first size of the input is ", type.shape[0].value(), " and cannot vary"),
             cat("--batch ", batch, ", input '", g[v].name, "'"),
             "compile the model with --shape, or drop --batch");
    }
  std::vector<Dims> out;
  for (ir::ValueId v : g.inputs) {
    const Type& type = g.type(v);
    if (!type.is_tensor())
      fail(ErrorCode::bad_type, cat("an input of type ", type.str(), " cannot be made up"),
           cat("input '", g[v].name, "'"));
    if (!type.ranked)
      fail(ErrorCode::bad_shape, "the rank of the input is not known", cat("input '", g[v].name, "'"),
           cat("give --shape ", g[v].name, "=AxBxC"));
    std::set<std::string> names;
    for (const Dim& d : type.shape) d.collect_symbols(names);
    for (const std::string& s : names) {
      auto best = optimum.find(s);
      auto range = g.symbols->ranges.find(s);
      int64_t low = range == g.symbols->ranges.end() ? 1 : std::max<int64_t>(1, range->second.min);
      sizes.emplace(s, best != optimum.end() ? best->second : low);
    }
    out.push_back(eval(type.shape, sizes));
  }
  return out;
}

std::vector<HostValue> random_inputs(const Graph& g, const std::vector<Dims>& dims, uint64_t seed) {
  std::vector<HostValue> out;
  for (size_t i = 0; i < dims.size(); ++i) {
    DType dtype = g.type(g.inputs[i]).dtype;
    if (dtype == DType::string)
      fail(ErrorCode::bad_type, "strings cannot be made up", cat("input '", g[g.inputs[i]].name, "'"));
    Tensor t(dtype, dims[i]);
    RandomStream random{seed, 0, i};
    if (dtype == DType::f32) {
      float* p = t.as_mutable<float>();
      for (int64_t e = 0; e < t.count(); ++e)
        p[e] = static_cast<float>(random.normal(static_cast<uint64_t>(e)));
    } else {
      t.mutable_data();
      for (int64_t e = 0; e < t.count(); ++e) {
        auto at = static_cast<uint64_t>(e);
        t.set_double(e, is_float(dtype) ? random.normal(at) : static_cast<double>(random.bits(at) & 1));
      }
    }
    out.emplace_back(std::move(t));
  }
  return out;
}

std::vector<std::string> file_names(const std::vector<std::string>& value_names) {
  auto plain = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' ||
           c == '_' || c == '-';
  };
  // Those that stay as they are first: they get no number because of others.
  std::set<std::string> taken;
  for (const std::string& name : value_names)
    if (std::all_of(name.begin(), name.end(), plain)) taken.insert(name);
  std::vector<std::string> out;
  for (const std::string& name : value_names) {
    std::string file = name;
    for (char& c : file)
      if (!plain(c)) c = '_';
    if (file != name) {
      const std::string first = file;
      for (int i = 2; !taken.insert(file).second; ++i) file = cat(first, "-", i);
    }
    out.push_back(std::move(file));
  }
  return out;
}

void require_amount(double value, std::string_view flag) {
  if (!std::isfinite(value) || value < 0)
    throw Misuse{cat(flag, " is ", value), "use a number that is finite and not negative"};
}

CompileOptions compile_options(const std::vector<std::string>& shapes, const std::string& precision) {
  CompileOptions options;
  options.shapes = pairs(shapes, "--shape");
  for (const auto& [name, text] : options.shapes) {
    try {
      passes::parse_shape(text);
    } catch (const Error& e) {
      throw Misuse{cat(e.message(), " (--shape ", name, ")"), e.fix()};
    }
  }
  options.precision = precision;
  return options;
}

}  // namespace pelton::cli
