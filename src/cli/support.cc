// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/log.h"
#include "cli/command.h"
#include "register/registry.h"

namespace pelton::cli {

device::Target Globals::target() const {
  std::string note;
  device::Target t = find_device(device, threads, &note);
  if (!note.empty()) {
    if (device_named && !quiet)
      std::fprintf(stderr, "pelton: %s\n", note.c_str());
    else
      log_info(note);
  }
  return t;
}

void print_line(std::string_view line) {
  // Flushed, so that a reader of a long run sees each line when it is written.
  bool written = std::fwrite(line.data(), 1, line.size(), stdout) == line.size() &&
                 std::fputc('\n', stdout) != EOF && std::fflush(stdout) == 0;
  if (!written) fail(ErrorCode::io, "standard output cannot be written");
}

void print_json(const nlohmann::json& object) {
  print_line(object.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace));
}

Table::Table(std::vector<std::string> header, std::vector<bool> right) : right_(std::move(right)) {
  right_.resize(header.size(), false);
  rows_.push_back(std::move(header));
}
void Table::row(std::vector<std::string> cells) {
  cells.resize(rows_[0].size());
  rows_.push_back(std::move(cells));
}
void Table::print() const {
  std::vector<size_t> width(rows_[0].size(), 0);
  for (const auto& r : rows_)
    for (size_t i = 0; i < r.size(); ++i) width[i] = std::max(width[i], r[i].size());
  for (const auto& r : rows_) {
    std::string line;
    for (size_t i = 0; i < r.size(); ++i) {
      std::string pad(width[i] - r[i].size(), ' ');
      line += right_[i] ? pad + r[i] : r[i] + pad;
      if (i + 1 < r.size()) line += "  ";
    }
    line.erase(line.find_last_not_of(' ') + 1);
    print_line(line);
  }
}

std::map<std::string, std::string> pairs(const std::vector<std::string>& options, std::string_view flag) {
  std::map<std::string, std::string> out;
  for (const std::string& o : options) {
    size_t equals = o.find('=');
    if (equals == o.npos || equals == 0)
      throw Misuse{cat(flag, " '", o, "' has no name"), cat("write ", flag, " name=value")};
    if (!out.emplace(o.substr(0, equals), o.substr(equals + 1)).second)
      throw Misuse{cat(flag, " names '", o.substr(0, equals), "' twice"), ""};
  }
  return out;
}

Dims parse_dims(const std::string& text) {
  Dims dims;
  if (text == "scalar") return dims;
  size_t at = 0;
  while (true) {
    size_t end = std::min(text.find('x', at), text.size());
    int64_t v = 0;
    auto r = std::from_chars(text.data() + at, text.data() + end, v);
    if (at == end || r.ec != std::errc() || r.ptr != text.data() + end || v < 0)
      throw Misuse{cat("'", text, "' is no shape"), "write sizes as 1x3x224x224, or scalar"};
    dims.push_back(v);
    if (end == text.size()) return dims;
    at = end + 1;
  }
}

std::string dims_text(const Dims& dims) {
  if (dims.empty()) return "scalar";
  std::string out;
  for (size_t i = 0; i < dims.size(); ++i) append(out, cat(i ? "x" : "", dims[i]));
  return out;
}

std::string fixed(double value, int decimals) {
  char buffer[64];
  std::snprintf(buffer, sizeof buffer, "%.*f", decimals, value);
  return buffer;
}

std::string bytes_text(double bytes) {
  const char* units[] = {"B", "KiB", "MiB", "GiB", "TiB"};
  size_t unit = 0;
  for (; bytes >= 1024 && unit < 4; ++unit) bytes /= 1024;
  return cat(fixed(bytes, unit ? 1 : 0), " ", units[unit]);
}

}  // namespace pelton::cli
