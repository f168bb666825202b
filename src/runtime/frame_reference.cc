// SPDX-License-Identifier: Apache-2.0
// Steps without a kernel: the op's reference function on host values. Sub-graphs run as regions, so their
// nodes use kernels.
#include <cstring>

#include "backend/ran_by.h"
#include "base/clock.h"
#include "interp/interpreter.h"
#include "ir/op.h"
#include "ir/physical.h"
#include "runtime/frame.h"
#include "runtime/late_weights.h"

namespace pelton::runtime {

using namespace ir;

HostValue Frame::value_of(const Ref& ref, void* at, bool plain, int64_t rows) const {
  const Graph& g = region_.graph();
  if (!ref.value) return {};
  const Type& type = g.type(ref.value);
  const Region::Value& place = region_.value(ref.value);
  if (type.kind == TypeKind::token) return HostValue::token();
  const bool part = rows > 0 && ref.slice_bytes > 0;
  if (!part && place.root == ref.value && (!type.is_tensor() || type.layout.is_plain())) {
    if (ref.place == Place::host) return host_[ref.index];
    if (ref.place == Place::input) return inputs_[ref.index];
    if (ref.place == Place::constant) {
      LateWeights::instance().ready(region_.constant(ref.index).data());
      return region_.constant(ref.index);
    }
  }
  if (ref.place == Place::constant) LateWeights::instance().ready(at);
  Dims dims = ref.dims;
  if (part) dims[0] = rows;
  Tensor borrowed = Tensor::borrow(type.dtype, dims, at, nullptr);
  return plain ? from_physical(borrowed, type.dtype, dims, type.layout) : borrowed;
}

// Results may share storage with operands that only borrow from the arena or from a caller; such results are
// copied, since they outlive it.
void Frame::own(HostValue& value, const std::vector<HostValue>& inputs) const {
  for (HostValue& item : value.items) own(item, inputs);
  Tensor& t = value.tensor;
  if (!t.defined() || t.dtype() == DType::string || t.count() == 0) return;
  for (const HostValue& in : inputs) {
    const Tensor& s = in.tensor;
    if (!s.defined() || s.dtype() == DType::string) continue;
    auto begin = static_cast<const std::byte*>(s.data());
    auto at = static_cast<const std::byte*>(t.data());
    if (at >= begin && at < begin + s.bytes()) {
      t = t.clone();
      return;
    }
  }
}

void Frame::run_reference(const Loaded& l, const Step& step, const RunOptions& options) {
  const Graph& g = region_.graph();
  const ir::Node& n = g[step.node];
  const Program& p = *l.program;
  std::vector<HostValue> inputs;
  inputs.reserve(step.in_count);
  for (uint32_t i = 0; i < step.in_count; ++i) {
    const Ref& ref = p.refs[step.first_in + i];
    inputs.push_back(value_of(ref, l.addresses[step.first_in + i], true));
  }
  std::vector<HostValue> outputs(n.outputs.size());
  std::function<std::vector<HostValue>(const Graph&, std::vector<HostValue>)> nested =
      [&](const Graph& body, std::vector<HostValue> args) {
        const Region* region = region_.body(&body);
        if (!region) {
          interp::Options inner;
          inner.random = options.random;
          inner.symbols = symbols_;
          return interp::run(body, args, {}, inner).outputs;
        }
        std::unique_ptr<Frame>& frame = bodies_[region];
        if (!frame) frame = Frame::make(*region);
        for (size_t i = 0; i < args.size(); ++i) frame->set_input(i, std::move(args[i]));
        frame->run(options, symbols_);
        std::vector<HostValue> results = frame->take_outputs();
        return results;
      };
  EvalContext context{g, n, inputs, outputs, symbols_, options.random, nested};
  if (!n.op->eval)
    fail(ErrorCode::unsupported_op,
         cat("op ", n.op->name, " has neither a kernel here nor a reference function"),
         g.describe(step.node));
  try {
    n.op->eval(context);
  } catch (const Error& e) {
    if (e.where().empty()) throw Error(e.code(), e.message(), g.describe(step.node), e.fix());
    throw;
  }
  for (uint32_t i = 0; i < step.out_count; ++i) {
    ValueId v = n.outputs[i];
    const Type& type = g.type(v);
    const Ref& ref = p.refs[step.first_out + i];
    if (!type.is_tensor()) {
      own(outputs[i], inputs);
      if (ref.place == Place::host) host_[ref.index] = std::move(outputs[i]);
      continue;
    }
    Tensor& t = outputs[i].tensor;
    PELTON_CHECK(t.defined() && t.dtype() == type.dtype, g.describe(step.node), " yielded ", t.str(), " for ",
                 type.str());
    interp::bind_symbols(type, t.dims(), symbols_, g.describe(step.node));
    void* at = l.addresses[step.first_out + i];
    bool sized = region_.value(v).sized;
    if (sized) {
      PELTON_CHECK(t.dims() == ref.dims, g.describe(step.node), " yielded ", t.str());
      Tensor placed = to_physical(t, type.layout);
      if (ref.bytes) std::memcpy(at, placed.data(), static_cast<size_t>(ref.bytes));
    } else {
      own(outputs[i], inputs);
      if (type.dtype != DType::string) t = aligned(t);
      host_[ref.index] = std::move(outputs[i]);
    }
  }
}

void Frame::report(const Loaded& l, const Step& step, int64_t start_ns, int64_t end_ns,
                   const RunOptions& options, int64_t slice) {
  const Program& p = *l.program;
  const bool sliced = slice >= 0;
  auto values = [&](uint32_t first, uint32_t count, bool results) {
    std::vector<HostValue> out;
    for (uint32_t i = first; i < first + count; ++i) {
      const Ref& ref = p.refs[i];
      bool object = ref.place == Place::host && ref.dims.empty() && ref.bytes == 0;
      if (results && object)
        out.push_back(host_[ref.index]);
      else
        out.push_back(value_of(ref, l.addresses[i], options.plain_values, sliced ? p.slices.rows : 0));
    }
    return out;
  };
  std::vector<HostValue> inputs = values(step.first_in, step.in_count, false);
  std::vector<HostValue> outputs = values(step.first_out, step.out_count, true);
  const Region::Node& node = region_.nodes()[step.position];
  const std::string_view ran = backend::ran_by(step.kernel, node.implementation);
  options.observe({region_.graph(), step.node, ran, start_ns, end_ns, region_.depth(), inputs, outputs,
                   sliced ? slice : 0, sliced ? p.slices.count : 1});
}

}  // namespace pelton::runtime
