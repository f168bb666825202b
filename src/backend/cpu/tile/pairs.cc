// SPDX-License-Identifier: Apache-2.0
// Super-instructions: pairs of steps in one pass over L1.
#include <algorithm>

#include "backend/cpu/tile/program.h"

namespace pelton::backend::cpu {
namespace {

struct Pair {
  Code first, second;
  int side;  // operand of the second step that the first one yields
  Code both;
};
// Two steps in one pass over L1. (x, y, z): the first step's operands, then the second's other one, if it has
// one.
constexpr Pair kPairs[] = {{Code::mul, Code::add, 0, Code::multiply_add},
                           {Code::mul, Code::add, 1, Code::multiply_add},
                           {Code::add, Code::relu, 0, Code::add_relu},
                           {Code::multiply_add, Code::relu, 0, Code::multiply_add_relu},
                           {Code::sub, Code::square, 0, Code::sub_square},
                           {Code::sub, Code::mul, 0, Code::sub_mul},
                           {Code::sub, Code::mul, 1, Code::sub_mul},
                           {Code::add, Code::mul, 0, Code::add_mul},
                           {Code::add, Code::mul, 1, Code::add_mul},
                           {Code::add, Code::add, 0, Code::add_add},
                           {Code::add, Code::add, 1, Code::add_add},
                           {Code::mul, Code::mul, 0, Code::mul_mul},
                           {Code::mul, Code::mul, 1, Code::mul_mul},
                           {Code::mul, Code::sub, 0, Code::mul_sub},
                           {Code::mul, Code::sub, 1, Code::sub_product},
                           {Code::sub_mul, Code::add, 0, Code::sub_multiply_add},
                           {Code::sub_mul, Code::add, 1, Code::sub_multiply_add},
                           {Code::hard_swish, Code::add, 0, Code::hard_swish_add},
                           {Code::hard_swish, Code::add, 1, Code::hard_swish_add},
                           {Code::add, Code::gelu_erf, 0, Code::add_gelu_erf},
                           {Code::add, Code::gelu_tanh, 0, Code::add_gelu_tanh},
                           {Code::silu, Code::mul, 0, Code::silu_mul},
                           {Code::silu, Code::mul, 1, Code::silu_mul},
                           {Code::sigmoid, Code::mul, 0, Code::sigmoid_mul},
                           {Code::sigmoid, Code::mul, 1, Code::sigmoid_mul},
                           {Code::tanh, Code::mul, 0, Code::tanh_mul},
                           {Code::tanh, Code::mul, 1, Code::tanh_mul}};

}  // namespace

// Runs in order, so triples form from pairs.
void fuse_pairs(Program& p, const std::vector<int>& results, device::CpuIsa isa) {
  std::vector<int> readers(p.registers.size(), 0), writer(p.registers.size(), -1);
  for (size_t i = 0; i < p.code.size(); ++i) {
    for (int r : p.code[i].in)
      if (r >= 0) ++readers[static_cast<size_t>(r)];
    writer[static_cast<size_t>(p.code[i].out)] = static_cast<int>(i);
  }
  for (int r : results) ++readers[static_cast<size_t>(r)];
  std::vector<bool> dead(p.code.size(), false);
  for (Instruction& i : p.code)
    for (const Pair& pair : kPairs) {
      if (i.one || i.code != pair.second || i.in[pair.side] < 0) continue;
      const auto r = static_cast<size_t>(i.in[pair.side]);
      if (writer[r] < 0 || readers[r] != 1) continue;
      const auto w = static_cast<size_t>(writer[r]);
      const Instruction& first = p.code[w];
      if (first.code != pair.first || first.one || dead[w]) continue;
      const int other = i.in[1 - pair.side];
      int count = 0;
      while (count < 3 && first.in[count] >= 0) ++count;
      std::copy_n(first.in, count, i.in);
      if (other >= 0) i.in[count] = other;
      i.code = pair.both;
      i.f = f32_step(i.code, isa);
      dead[w] = true;
    }
  // A sum of two runs and its reduction, whoever else reads the sum.
  for (size_t k = 0; k < p.code.size(); ++k) {
    const Instruction& i = p.code[k];
    if (i.code != Code::reduce_sum && i.code != Code::reduce_max) continue;
    const int w = writer[static_cast<size_t>(i.in[0])];
    if (w < 0 || dead[static_cast<size_t>(w)]) continue;
    Instruction& first = p.code[static_cast<size_t>(w)];
    if (first.code != Code::add || first.one) continue;
    first.code = i.code == Code::reduce_sum ? Code::add_sum : Code::add_max;
    first.f = f32_step(first.code, isa);
    first.out2 = i.out;
    dead[k] = true;
  }
  size_t kept = 0;
  for (size_t i = 0; i < p.code.size(); ++i)
    if (!dead[i]) {
      if (kept != i) p.code[kept] = std::move(p.code[i]);
      ++kept;
    }
  p.code.resize(kept);
}

}  // namespace pelton::backend::cpu
