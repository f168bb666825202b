// SPDX-License-Identifier: Apache-2.0
// Super-instructions: pairs of cheap steps in one pass over L1.
#include <algorithm>

#include "backend/cpu/tile/program.h"

namespace pelton::backend::cpu {
namespace {

struct Pair {
  Code first, second;
  int side;  // operand of the second step that the first one yields
  Code both;
};
// Two cheap steps in one pass over L1. (x, y, z): the first step's operands, then the second's other one.
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
                           {Code::sub_mul, Code::add, 1, Code::sub_multiply_add}};

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
      if (pair.second != Code::relu && pair.second != Code::square) i.in[count] = other;
      i.code = pair.both;
      i.f = f32_step(i.code, isa);
      dead[w] = true;
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
