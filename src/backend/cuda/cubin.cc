// SPDX-License-Identifier: Apache-2.0
#include "backend/cuda/cubin.h"

#include <elf.h>

#include <cstring>

#include "base/cat.h"

namespace pelton::backend::cuda {
namespace {

// Whether `count` entries of `size` bytes from `at` lie inside.
bool inside(std::string_view bytes, uint64_t at, uint64_t count, uint64_t size) {
  return at <= bytes.size() && (size == 0 || count <= (bytes.size() - at) / size);
}

template <class Entry>
Entry entry_at(std::string_view bytes, uint64_t at) {
  Entry out;
  std::memcpy(&out, bytes.data() + at, sizeof out);
  return out;
}

}  // namespace

std::string why_no_cubin(std::string_view bytes) {
  if (bytes.size() < sizeof(Elf64_Ehdr)) return cat("it has ", bytes.size(), " bytes");
  const auto header = entry_at<Elf64_Ehdr>(bytes, 0);
  if (std::memcmp(header.e_ident, ELFMAG, SELFMAG) != 0 || header.e_ident[EI_CLASS] != ELFCLASS64 ||
      header.e_machine != EM_CUDA)
    return "it is no cubin";
  if (header.e_shentsize != sizeof(Elf64_Shdr) ||
      (header.e_phnum > 0 && header.e_phentsize != sizeof(Elf64_Phdr)))
    return "its tables have entries of another size";
  if (!inside(bytes, header.e_shoff, header.e_shnum, sizeof(Elf64_Shdr)) ||
      !inside(bytes, header.e_phoff, header.e_phnum, sizeof(Elf64_Phdr)) ||
      header.e_shstrndx >= header.e_shnum)
    return "a table reaches behind its end";
  for (uint64_t i = 0; i < header.e_shnum; ++i) {
    const auto section = entry_at<Elf64_Shdr>(bytes, header.e_shoff + i * sizeof(Elf64_Shdr));
    if (section.sh_type != SHT_NOBITS && !inside(bytes, section.sh_offset, section.sh_size, 1))
      return cat("section ", i, " reaches behind its end");
  }
  for (uint64_t i = 0; i < header.e_phnum; ++i) {
    const auto segment = entry_at<Elf64_Phdr>(bytes, header.e_phoff + i * sizeof(Elf64_Phdr));
    if (!inside(bytes, segment.p_offset, segment.p_filesz, 1))
      return cat("segment ", i, " reaches behind its end");
  }
  return {};
}

}  // namespace pelton::backend::cuda
