// SPDX-License-Identifier: Apache-2.0
#include "ir/ops/shape_eval.h"

#include "ir/ops/common.h"

namespace pelton::ir {

void eval_constant(EvalContext& c) {
  c.out(0, c.node.get_tensor("value"));
}
void eval_reshape(EvalContext& c) {
  Dims to = c.dims("dims");
  if (element_count(to) != c.in(0).count())
    c.refuse(ErrorCode::bad_shape, cat("cannot view ", c.in(0).str(), " as ", to));
  c.out(0, c.in(0).reshaped(to));
}

void eval_transpose(EvalContext& c) {
  const Tensor& x = c.in(0);
  const Ints& perm = c.node.get_ints("perm");
  Dims strides = row_major_strides(x.dims()), to, step;
  for (int64_t p : perm) {
    to.push_back(x.dims()[static_cast<size_t>(p)]);
    step.push_back(strides[static_cast<size_t>(p)]);
  }
  c.out(0, gather_elements_by(x, to, [&](const Dims& index) {
          int64_t at = 0;
          for (size_t d = 0; d < index.size(); ++d) at += index[d] * step[d];
          return at;
        }));
}

Tensor broadcast_tensor(const Tensor& x, const Dims& to) {
  Dims strides = row_major_strides(x.dims());
  return gather_elements_by(x, to,
                            [&](const Dims& index) { return broadcast_offset(index, x.dims(), strides); });
}
void eval_broadcast_to(EvalContext& c) {
  Dims to = c.dims("dims");
  if (broadcast_dims({c.in(0).dims(), to}) != to)
    c.refuse(ErrorCode::bad_shape, cat("cannot broadcast ", c.in(0).str(), " to ", to));
  c.out(0, broadcast_tensor(c.in(0), to));
}

void require_slice(const Dims& dims, const Ints& axes, const Dims& starts, const Dims& sizes,
                   const Ints& steps) {
  for (size_t i = 0; i < axes.size(); ++i) {
    const auto rank = static_cast<int64_t>(dims.size());
    const int64_t a = axes[i] < 0 ? axes[i] + rank : axes[i], size = dims[static_cast<size_t>(a)];
    const int64_t last = starts[i] + (sizes[i] - 1) * steps[i];
    if (sizes[i] < 0 || (sizes[i] > 0 && (starts[i] < 0 || starts[i] >= size || last < 0 || last >= size)))
      fail(ErrorCode::bad_shape, cat("slice from ", starts[i], " of ", sizes[i], " by ", steps[i],
                                     " leaves axis ", a, " of shape ", dims));
  }
}

Tensor slice_tensor(const Tensor& x, const Ints& axes, const Dims& starts, const Dims& sizes,
                    const Ints& steps) {
  require_slice(x.dims(), axes, starts, sizes, steps);
  Dims to = x.dims(), offset(x.dims().size(), 0), step(x.dims().size(), 1),
       strides = row_major_strides(x.dims());
  for (size_t i = 0; i < axes.size(); ++i) {
    auto a = static_cast<size_t>(axes[i] < 0 ? axes[i] + x.rank() : axes[i]);
    to[a] = sizes[i];
    offset[a] = starts[i];
    step[a] = steps[i];
  }
  return gather_elements_by(x, to, [&](const Dims& index) {
    int64_t at = 0;
    for (size_t d = 0; d < index.size(); ++d) at += (offset[d] + index[d] * step[d]) * strides[d];
    return at;
  });
}
void eval_slice(EvalContext& c) {
  c.out(0, slice_tensor(c.in(0), c.node.get_ints("axes"), c.dims("starts"), c.dims("sizes"),
                        c.node.get_ints("steps")));
}

void eval_concat(EvalContext& c) {
  int64_t axis = c.node.get_int("axis");
  auto a = static_cast<size_t>(axis < 0 ? axis + c.in(0).rank() : axis);
  Dims to = c.in(0).dims();
  to[a] = 0;
  for (const HostValue& v : c.inputs) to[a] += v.tensor.dims()[a];
  DType t = c.in(0).dtype();
  Tensor out = t == DType::string ? Tensor(t, to) : Tensor::zeros(t, to);
  Dims strides = row_major_strides(to);
  int64_t base = 0;
  for (const HostValue& v : c.inputs) {
    int64_t i = 0;
    for_each_index(v.tensor.dims(), [&](const Dims& index) {
      int64_t at = base * strides[a];
      for (size_t d = 0; d < index.size(); ++d) at += index[d] * strides[d];
      copy_element(out, at, v.tensor, i++);
    });
    base += v.tensor.dims()[a];
  }
  c.out(0, std::move(out));
}

namespace {

// Source index of a padded position, or -1 for the pad value. `reflect` does not repeat the border and folds
// as often as needed; `wrap` is periodic.
int64_t padded_source(int64_t at, int64_t size, const std::string& mode) {
  if (at >= 0 && at < size) return at;
  if (mode == "constant" || size == 0) return -1;
  if (mode == "edge") return at < 0 ? 0 : size - 1;
  if (mode == "wrap") return ((at % size) + size) % size;
  if (size == 1) return 0;
  int64_t period = 2 * (size - 1);
  int64_t folded = ((at % period) + period) % period;
  return folded < size ? folded : period - folded;
}

}  // namespace

Tensor pad_tensor(const Tensor& x, const Dims& low, const Dims& high, const std::string& mode,
                  const Tensor& value) {
  Dims to = x.dims();
  for (size_t d = 0; d < to.size(); ++d) {
    to[d] += low[d] + high[d];
    if (to[d] < 0)
      fail(ErrorCode::bad_shape, cat("pads ", low, " and ", high, " crop ", x.str(), " below size 0"));
    if (mode != "constant" && x.dims()[d] == 0 && to[d] > 0)
      fail(ErrorCode::bad_shape,
           cat("pad mode ", mode, " has nothing to repeat along axis ", d, " of ", x.str()));
  }
  DType t = x.dtype();
  Tensor out = t == DType::string ? Tensor(t, to) : Tensor::zeros(t, to);
  Dims strides = row_major_strides(x.dims());
  int64_t i = 0;
  for_each_index(to, [&](const Dims& index) {
    int64_t at = 0;
    for (size_t d = 0; d < index.size() && at >= 0; ++d) {
      int64_t source = padded_source(index[d] - low[d], x.dims()[d], mode);
      at = source < 0 ? -1 : at + source * strides[d];
    }
    if (at >= 0)
      copy_element(out, i, x, at);
    else if (value.defined())
      copy_element(out, i, value, 0);
    ++i;
  });
  return out;
}
void eval_pad(EvalContext& c) {
  c.out(0, pad_tensor(c.in(0), c.dims("low"), c.dims("high"), c.node.get_text("mode"),
                      c.has(1) ? c.in(1) : Tensor()));
}

Tensor tile_tensor(const Tensor& x, const Dims& repeats) {
  Dims to = x.dims(), strides = row_major_strides(x.dims());
  for (size_t d = 0; d < to.size(); ++d) {
    if (repeats[d] < 0) fail(ErrorCode::bad_shape, cat("negative repeats ", repeats));
    to[d] *= repeats[d];
  }
  return gather_elements_by(x, to, [&](const Dims& index) {
    int64_t at = 0;
    for (size_t d = 0; d < index.size(); ++d) at += index[d] % x.dims()[d] * strides[d];
    return at;
  });
}
void eval_tile(EvalContext& c) {
  c.out(0, tile_tensor(c.in(0), c.dims("repeats")));
}

void eval_reverse(EvalContext& c) {
  const Tensor& x = c.in(0);
  std::vector<bool> flip(x.dims().size(), false);
  for (int64_t a : c.node.get_ints("axes")) flip[static_cast<size_t>(a < 0 ? a + x.rank() : a)] = true;
  Dims strides = row_major_strides(x.dims());
  c.out(0, gather_elements_by(x, x.dims(), [&](const Dims& index) {
          int64_t at = 0;
          for (size_t d = 0; d < index.size(); ++d)
            at += (flip[d] ? x.dims()[d] - 1 - index[d] : index[d]) * strides[d];
          return at;
        }));
}

void eval_iota(EvalContext& c) {
  Dims to = c.dims("dims");
  int64_t axis = c.node.get_int("axis");
  auto a = static_cast<size_t>(axis < 0 ? axis + static_cast<int64_t>(to.size()) : axis);
  Tensor out = Tensor::zeros(c.node.get_dtype("dtype"), to);
  bool integers = is_int(out.dtype());
  int64_t i = 0;
  for_each_index(to, [&](const Dims& index) {
    if (integers)
      out.set_int(i++, index[a]);
    else
      out.set_double(i++, static_cast<double>(index[a]));
  });
  c.out(0, std::move(out));
}

void eval_fill(EvalContext& c) {
  c.out(0, gather_elements_by(c.in(0), c.dims("dims"), [](const Dims&) { return int64_t{0}; }));
}
void eval_shape_of(EvalContext& c) {
  c.out(0, Tensor::from<int64_t>({c.in(0).rank()}, c.in(0).dims()));
}
void eval_contents(EvalContext& c) {
  Dims values = c.dims("dims");
  c.out(0, Tensor::from<int64_t>({static_cast<int64_t>(values.size())}, values));
}

void eval_trilu(EvalContext& c) {
  const Tensor& x = c.in(0);
  bool upper = c.node.get_bool("upper");
  int64_t k = c.has(1) ? c.in(1).get_int(0) : 0;
  Tensor out = x.clone();
  int64_t i = 0;
  Tensor zero = Tensor::zeros(x.dtype(), {1});
  for_each_index(x.dims(), [&](const Dims& index) {
    int64_t row = index[index.size() - 2], column = index.back();
    bool keep = upper ? column - row >= k : column - row <= k;
    if (!keep) copy_element(out, i, zero, 0);
    ++i;
  });
  c.out(0, std::move(out));
}

}  // namespace pelton::ir
