// SPDX-License-Identifier: Apache-2.0
#include "train/report.h"

#include <unistd.h>

#include <cerrno>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "base/cat.h"
#include "base/file.h"

namespace pelton::train {

using Json = nlohmann::ordered_json;

namespace {

Json number(double v) {
  if (!std::isfinite(v)) return nullptr;
  return v;
}

std::FILE* open_append(const std::string& path) {
  std::FILE* f = std::fopen(path.c_str(), "ab");
  if (!f) fail_errno(errno, "open", path);
  return f;
}

void put(std::FILE* f, const std::string& bytes, const std::string& path) {
  if (std::fwrite(bytes.data(), 1, bytes.size(), f) != bytes.size() || std::fflush(f) != 0)
    fail_errno(errno, "write", path);
}

// The checksum of TFRecord: CRC-32C, rotated and offset.
uint32_t masked_crc(std::string_view bytes) {
  uint32_t crc = 0xFFFFFFFF;
  for (unsigned char c : bytes) {
    crc ^= c;
    for (int i = 0; i < 8; ++i) crc = crc >> 1 ^ (crc & 1 ? 0x82F63B78u : 0);
  }
  crc = ~crc;
  return ((crc >> 15) | (crc << 17)) + 0xA282EAD8u;
}

template <class T>
void raw(std::string& out, T v) {
  char bytes[sizeof v];
  std::memcpy(bytes, &v, sizeof v);
  out.append(bytes, sizeof v);
}
void varint(std::string& out, uint64_t v) {
  for (; v >= 0x80; v >>= 7) out.push_back(static_cast<char>(v | 0x80));
  out.push_back(static_cast<char>(v));
}
void text_field(std::string& out, char tag, const std::string& s) {
  out.push_back(tag);
  varint(out, s.size());
  out += s;
}

}  // namespace

MetricsFile::MetricsFile(const std::string& path, int64_t from) : path_(path), file_(nullptr) {
  if (file_exists(path)) {
    std::string kept, old = read_file(path);
    for (size_t at = 0; at < old.size();) {
      size_t end = std::min(old.find('\n', at), old.size());
      Json line = Json::parse(old.substr(at, end - at), nullptr, false);
      if (line.is_object() && line.contains("update") && line["update"].is_number_integer() &&
          line["update"].get<int64_t>() <= from)
        kept += old.substr(at, end - at) + "\n";
      at = end + 1;
    }
    write_file(path, kept);
  }
  file_ = open_append(path);
}
MetricsFile::~MetricsFile() {
  std::fclose(file_);
}
void MetricsFile::add(const std::string& kind, int64_t update, const Values& values) {
  Json line = {{"kind", kind}, {"update", update}};
  for (const auto& [name, v] : values) line[name] = number(v);
  put(file_, line.dump() + "\n", path_);
}

EventFile::EventFile(const std::string& folder, double wall_time_s, int64_t from) : file_(nullptr) {
  // Names sort by time; tensorboard lets the newest file win where steps overlap.
  path_ = cat(folder, "/events.out.tfevents.", static_cast<int64_t>(wall_time_s), ".", from, ".pelton.",
              static_cast<int64_t>(getpid()));
  file_ = open_append(path_);
  std::string event;
  event.push_back(0x09);  // 1: wall time
  raw(event, wall_time_s);
  text_field(event, 0x1A, "brain.Event:2");  // 3: file version
  record(event);
}
EventFile::~EventFile() {
  std::fclose(file_);
}
void EventFile::record(const std::string& bytes) {
  std::string out;
  raw(out, static_cast<uint64_t>(bytes.size()));
  raw(out, masked_crc(out));
  out += bytes;
  raw(out, masked_crc(bytes));
  put(file_, out, path_);
}
void EventFile::add(const std::string& kind, int64_t update, const Values& values, double wall_time_s) {
  for (const auto& [name, v] : values) {
    std::string scalar, summary, event;
    text_field(scalar, 0x0A, cat(kind, "/", name));  // 1: tag
    scalar.push_back(0x15);                          // 2: simple value
    raw(scalar, static_cast<float>(v));
    text_field(summary, 0x0A, scalar);  // 1: value
    event.push_back(0x09);
    raw(event, wall_time_s);
    event.push_back(0x10);  // 2: step
    varint(event, static_cast<uint64_t>(update));
    text_field(event, 0x2A, summary);  // 5: summary
    record(event);
  }
}

}  // namespace pelton::train
