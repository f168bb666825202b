// SPDX-License-Identifier: Apache-2.0
// The registers of a program: what nodes read and yield.
#include <algorithm>

#include "backend/cpu/tile/compiler.h"
#include "ir/op.h"

namespace pelton::backend::cpu {

TileCompiler::TileCompiler(const Region& region, const Instance& instance, const device::Target& target)
    : r_(region), g_(region.graph), instance_(instance), target_(target), analysis_(analyse(region)) {
  PELTON_CHECK(analysis_.reason.empty(), analysis_.reason);
  space_ = concrete(analysis_.space);
  p_.has_rows = !analysis_.axes.empty();
  ir::Layout layout;
  for (size_t i = 0; i < r_.outputs.size(); ++i)
    if (place(r_.outputs[i]).kind == Place::full) layout = instance.outputs[i].layout;
  loops_ = loops_of(space_, layout, analysis_.axes);
  reg_.assign(g_.value_count(), -1);
  whole_ = reg_;
}

Program TileCompiler::run() {
  for (size_t i = 0; i < r_.inputs.size(); ++i)
    if (r_.inputs[i]) input_of_.emplace(r_.inputs[i].index, static_cast<int>(i));
  for (ir::NodeId id : r_.nodes) emit(id);
  std::vector<int> results;
  for (ir::ValueId v : r_.outputs)
    if (place(v).kind != Place::source && result(v) >= 0) results.push_back(result(v));
  fuse_pairs(p_, results, target_.isa);
  for (size_t i = 0; i < r_.outputs.size(); ++i) add_sink(i);
  build_nest();
  assign_slots();
  choose_tile();
  choose_grain();
  return std::move(p_);
}

Dims TileCompiler::aligned(const Dims& dims, bool squeezed) const {
  Dims out(space_.size(), 1);
  if (!squeezed) {
    std::copy(dims.begin(), dims.end(), out.end() - static_cast<int64_t>(dims.size()));
    return out;
  }
  size_t from = dims.size();
  for (size_t a = space_.size(); a-- > 0 && from > 0;)
    if (std::find(analysis_.axes.begin(), analysis_.axes.end(), static_cast<int64_t>(a)) ==
        analysis_.axes.end())
      out[a] = dims[--from];
  return out;
}

int TileCompiler::use(ir::ValueId v, bool squeezed, int64_t axis) {
  if (place(v).kind == Place::source) return source(v, squeezed, axis, lane_of(dtype(v)));
  if (reg_[v.index] < 0 && whole_[v.index] >= 0) set(v, convert(whole_[v.index], dtype(v)));
  return reg_[v.index];
}

int TileCompiler::use_real(ir::ValueId v, int64_t axis) {
  const bool is_source = place(v).kind == Place::source;
  if (is_source && load_whole(dtype(v), target_.isa)) return source(v, false, axis, Lane::f32);
  if (!is_source && whole_[v.index] >= 0) return whole_[v.index];
  return convert(use(v, false, axis), DType::f32);
}

int TileCompiler::convert(int r, DType to) {
  auto info = std::make_shared<WideInfo>();
  info->lane = p_.registers[static_cast<size_t>(r)].lane;
  info->dtype = to;
  if (info->lane == lane_of(to)) return r;
  return step(convert_step(info->lane, lane_of(to)), lane_of(to), {r}, 0, 0, info);
}

int TileCompiler::source(ir::ValueId v, bool squeezed, int64_t axis, Lane lane) {
  // Through reshapes to the bytes.
  ir::ValueId bytes = v;
  while (!input_of_.count(bytes.index) && role(g_[g_[bytes].producer]) == Role::reshape)
    bytes = g_[g_[bytes].producer].inputs[0];
  Tensor constant;
  int input = -1;
  ir::Layout layout;
  Dims dims;
  if (auto it = input_of_.find(bytes.index); it != input_of_.end()) {
    input = it->second;
    const TensorSpec& spec = instance_.inputs[static_cast<size_t>(input)];
    layout = spec.layout;
    dims = v == bytes ? spec.dims : concrete(place(v).shape);
    constant = static_cast<size_t>(input) < instance_.constants.size()
                   ? instance_.constants[static_cast<size_t>(input)]
                   : Tensor();
  } else {
    constant = g_[g_[bytes].producer].get_tensor("value");
    dims = concrete(place(v).shape);
  }
  if (constant.defined() && constant.count() == 1 && lane != Lane::i64)
    return constant_register(lane, constant.get_double(0));
  Dims full(space_.size(), 1);  // one value lies along no axis, whatever its rank
  if (const int64_t count = element_count(dims); count != 1 && axis >= 0)
    full[static_cast<size_t>(axis)] = count;
  else if (count != 1)
    full = aligned(dims, squeezed);
  auto key = std::make_tuple(bytes.index, full, lane);
  if (auto it = source_regs_.find(key); it != source_regs_.end()) return it->second;
  Source s;
  s.input = input;
  if (input < 0) s.constant = constant;
  s.dtype = dtype(v);
  s.load = lane == lane_of(s.dtype) ? load_function(s.dtype, target_.isa) : load_whole(s.dtype, target_.isa);
  s.outer = strides_of(loops_, full, layout);  // split by build_nest
  p_.sources.push_back(std::move(s));
  Register r;
  r.kind = Register::source;
  r.lane = lane;
  r.index = static_cast<int>(p_.sources.size()) - 1;
  r.one = p_.has_rows && inner_is_one(full);
  p_.registers.push_back(r);
  return source_regs_[key] = static_cast<int>(p_.registers.size()) - 1;
}

bool TileCompiler::inner_is_one(const Dims& full) const {
  return std::all_of(analysis_.axes.begin(), analysis_.axes.end(),
                     [&](int64_t a) { return full[static_cast<size_t>(a)] == 1; });
}

int TileCompiler::constant_register(Lane lane, double value) {
  Register r;
  r.kind = Register::constant;
  r.lane = lane;
  r.one = true;
  r.value = value;
  p_.registers.push_back(r);
  return static_cast<int>(p_.registers.size()) - 1;
}

int TileCompiler::new_register(Lane lane, bool one) {
  Register r;
  r.lane = lane;
  r.one = one;
  p_.registers.push_back(r);
  return static_cast<int>(p_.registers.size()) - 1;
}

int TileCompiler::step(StepFunction f, Lane result, std::initializer_list<int> in, float imm0, float imm1,
                       std::shared_ptr<const WideInfo> wide, bool reduces) {
  PELTON_CHECK(f);
  Instruction i;
  i.f = f;
  bool one = true;
  int k = 0;
  for (int r : in) {
    i.in[k++] = r;
    one &= p_.registers[static_cast<size_t>(r)].one;
  }
  i.one = one;
  i.imm[0] = imm0;
  i.imm[1] = imm1;
  i.wide = std::move(wide);
  i.out = new_register(result, one || reduces);
  p_.code.push_back(i);
  return i.out;
}

int TileCompiler::f32(Code code, std::initializer_list<int> in, double imm0, double imm1) {
  const bool reduces = code == Code::reduce_sum || code == Code::reduce_max || code == Code::reduce_min ||
                       code == Code::reduce_prod || code == Code::reduce_squares;
  const int r =
      step(f32_step(code, target_.isa), code >= Code::eq && code <= Code::ge ? Lane::boolean : Lane::f32, in,
           static_cast<float>(imm0), static_cast<float>(imm1), nullptr, reduces);
  p_.code.back().code = code;
  return r;
}

Program compile_program(const Region& region, const Instance& instance, const device::Target& target) {
  return TileCompiler(region, instance, target).run();
}

}  // namespace pelton::backend::cpu
