// SPDX-License-Identifier: Apache-2.0
#include "train/checkpoint.h"

#include <algorithm>
#include <exception>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <thread>

#include "base/file.h"
#include "base/hash.h"
#include "base/json_number.h"
#include "base/log.h"
#include "runtime/version.h"
#include "tensor/safetensors.h"

namespace pelton::train {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

namespace {

constexpr int64_t kFormat = 1;
constexpr const char* kStateKey = "pelton.state";
constexpr const char* kChecksumKey = "pelton.checksum";
constexpr const char* kBestName = "best.safetensors";

std::string_view bytes_of(const Tensor& t) {
  return {static_cast<const char*>(t.data()), static_cast<size_t>(t.bytes())};
}

// Of the state text and a line for each tensor: name, type, dims, checksum of its bytes.
std::string sum_of(const std::string& state, const std::map<std::string, Tensor>& tensors) {
  std::string all = state;
  for (const auto& [name, t] : tensors)
    append(all, cat("\n", name, " ", t.str(), " ", checksum(bytes_of(t)).str()));
  return checksum(all).str();
}

[[noreturn]] void damaged(const std::string& path, std::string what) {
  fail(ErrorCode::bad_format, std::move(what), path, "use an earlier checkpoint of the run");
}

}  // namespace

void write_checkpoint(const std::string& path, const Checkpoint& c) {
  Json state = {{"format", kFormat},    {"pelton", std::string(pelton::version())},
                {"model", c.model},     {"updates", c.updates},
                {"epoch", c.epoch},     {"epoch_step", c.epoch_step},
                {"data", c.data_state}, {"since_best", c.since_best},
                {"recipe", c.recipe}};
  if (c.has_best) state["best"] = c.best;
  if (!c.tactics.empty()) state["tactics"] = c.tactics;
  std::string text = state.dump();
  save_safetensors(path, c.state, {{kStateKey, text}, {kChecksumKey, sum_of(text, c.state)}});
}

Checkpoint read_checkpoint(const std::string& path) {
  // A private copy: the run may go on from it while the file is replaced or removed.
  std::string bytes = read_file(path, uint64_t{1} << 40);
  Safetensors file = with_place(path, [&] { return parse_safetensors(bytes); });
  auto state = file.metadata.find(kStateKey), sum = file.metadata.find(kChecksumKey);
  if (state == file.metadata.end() || sum == file.metadata.end())
    fail(ErrorCode::bad_format, "the file is no checkpoint, it only holds tensors", path,
         "load it as weights: model = { weights = ... }");
  if (sum_of(state->second, file.tensors) != sum->second)
    damaged(path, "the checkpoint does not match its checksum");
  Json j = Json::parse(state->second, nullptr, false);
  Checkpoint c;
  try {
    if (int64_t format = json_integer(j.at("format")); format != kFormat)
      fail(ErrorCode::unsupported_version, cat("checkpoint format ", format, " is not known"), path,
           cat("this release reads format ", kFormat));
    c.version = j.at("pelton").get<std::string>();
    c.model = j.at("model").get<std::string>();
    c.updates = json_integer(j.at("updates"));
    c.epoch = json_integer(j.at("epoch"));
    c.epoch_step = json_integer(j.at("epoch_step"));
    c.data_state = j.at("data").get<std::string>();
    c.recipe = j.at("recipe").get<std::string>();
    c.since_best = json_integer(j.at("since_best"));
    c.has_best = j.contains("best");
    if (c.has_best) c.best = j["best"].get<double>();
    if (j.contains("tactics")) c.tactics = j["tactics"].get<std::map<std::string, std::string>>();
  } catch (const Json::exception& e) {
    damaged(path, cat("the state of the checkpoint does not read: ", e.what()));
  } catch (const Error& e) {
    throw e.within(path);
  }
  c.state = std::move(file.tensors);
  return c;
}

std::string checkpoint_name(int64_t updates) {
  std::string digits = cat(updates);
  return cat("step-", std::string(digits.size() < 9 ? 9 - digits.size() : 0, '0'), digits, ".safetensors");
}

std::vector<std::string> list_checkpoints(const std::string& folder) {
  std::vector<std::string> out;
  std::error_code ec;
  for (const auto& entry : fs::directory_iterator(folder, ec)) {
    std::string name = entry.path().filename().string();
    if (name.starts_with("step-") && name.ends_with(".safetensors")) out.push_back(entry.path().string());
  }
  std::sort(out.rbegin(), out.rend());
  return out;
}

Checkpoint newest_checkpoint(const std::string& folder) {
  for (const std::string& path : list_checkpoints(folder)) {
    try {
      return read_checkpoint(path);
    } catch (const Error& e) {
      if (e.code() != ErrorCode::bad_format) throw;
      log_warn(cat("skipping a damaged checkpoint: ", e.what()));
    }
  }
  fail(ErrorCode::not_found, "the folder holds no checkpoint that can be read", folder);
}

struct CheckpointWriter::Worker {
  std::thread thread;
  std::exception_ptr error;
};

CheckpointWriter::CheckpointWriter(std::string folder, int64_t keep)
    : folder_(std::move(folder)), keep_(keep), worker_(std::make_unique<Worker>()) {
  std::error_code ec;
  fs::create_directories(folder_, ec);
  if (ec) fail_errno(ec.value(), "create", folder_);
}

CheckpointWriter::~CheckpointWriter() {
  try {
    wait();
  } catch (const std::exception& e) {
    log_error(cat("a checkpoint was not written: ", e.what()));
  }
}

void CheckpointWriter::wait() {
  if (worker_->thread.joinable()) worker_->thread.join();
  if (std::exception_ptr e = std::exchange(worker_->error, nullptr)) std::rethrow_exception(e);
}

void CheckpointWriter::write(Checkpoint c, bool best) {
  wait();
  worker_->thread = std::thread([this, c = std::move(c), best] {
    try {
      finish(c, best);
    } catch (...) {
      worker_->error = std::current_exception();
    }
  });
}

void CheckpointWriter::finish(const Checkpoint& c, bool best) {
  std::string path = cat(folder_, "/", checkpoint_name(c.updates));
  write_checkpoint(path, c);
  if (best) {
    // A second name of the same bytes where the file system allows it, else a copy; put in place at once.
    std::string temporary = cat(folder_, "/.", kBestName), target = cat(folder_, "/", kBestName);
    std::error_code ec;
    fs::remove(temporary, ec);
    fs::create_hard_link(path, temporary, ec);
    if (ec)
      write_checkpoint(target, c);
    else
      fs::rename(temporary, target);
  }
  // Only once the new one is safe do older ones go.
  std::vector<std::string> all = list_checkpoints(folder_);
  for (size_t i = static_cast<size_t>(keep_); i < all.size(); ++i) {
    std::error_code ec;
    fs::remove(all[i], ec);
    if (ec) log_warn(cat("an old checkpoint cannot be removed: ", all[i], ": ", ec.message()));
  }
}

}  // namespace pelton::train
