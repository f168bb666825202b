// SPDX-License-Identifier: Apache-2.0
// Runs a fuzz target where the compiler has no libFuzzer, so that sanitizer builds that exist anyway can
// fuzz:
//   fuzz_x [-max_total_time=SECONDS] [-seed=N] [-artifact_prefix=PATH] FOLDER_OR_FILE...
// Every file is run once, then mutations of them. It sees no coverage; what a target accepts joins the
// inputs. The input at work lies in PREFIX + "running" and stays there when the process ends by a finding.
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "fuzz/fuzz.h"
#include "fuzz/mutate.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);
extern "C" __attribute__((weak)) size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size, size_t most,
                                                                unsigned int seed);

namespace {

using Clock = std::chrono::steady_clock;
namespace fs = std::filesystem;

constexpr size_t kMostBytes = 65536, kMostKept = 20000;
constexpr int kMostSeconds = 20;  // of one input

pelton::fuzz::Mutator* mutator = nullptr;

// The input at work, in a shared mapping of a file: size, then bytes.
class Running {
 public:
  explicit Running(std::string path) : path_(std::move(path)) {
    const int file = ::open(path_.c_str(), O_RDWR | O_CREAT | O_TRUNC, 0644);
    if (file < 0 || ::ftruncate(file, kMostBytes) != 0) {
      std::perror(path_.c_str());
      std::exit(1);
    }
    bytes_ = static_cast<char*>(::mmap(nullptr, kMostBytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0));
    file_ = file;
  }
  ~Running() {
    ::munmap(bytes_, kMostBytes);
    ::close(file_);
    ::unlink(path_.c_str());
  }
  Running(const Running&) = delete;
  Running& operator=(const Running&) = delete;
  void run(const std::string& input) {
    if (size_ != input.size() && ::ftruncate(file_, static_cast<off_t>(input.size())) == 0)
      size_ = input.size();
    std::memcpy(bytes_, input.data(), std::min(size_, input.size()));
    ::alarm(kMostSeconds);
    LLVMFuzzerTestOneInput(reinterpret_cast<const uint8_t*>(input.data()), input.size());
    ::alarm(0);
  }

 private:
  std::string path_;
  char* bytes_ = nullptr;
  int file_ = -1;
  size_t size_ = kMostBytes;
};

std::vector<std::string> read_inputs(const std::vector<std::string>& paths) {
  std::vector<std::string> out;
  auto add = [&](const fs::path& p) {
    std::ifstream in(p, std::ios::binary);
    std::string content((std::istreambuf_iterator<char>(in)), {});
    if (content.size() <= kMostBytes) out.push_back(std::move(content));
  };
  for (const std::string& p : paths) {
    if (fs::is_regular_file(p)) add(p);
    if (fs::is_directory(p))
      for (const auto& entry : fs::recursive_directory_iterator(p))
        if (entry.is_regular_file()) add(entry.path());
  }
  return out;
}

void too_slow(int) {
  static constexpr char text[] = "an input takes more than 20 seconds\n";
  [[maybe_unused]] auto n = ::write(2, text, sizeof text - 1);
  std::abort();
}

std::string mutated(const std::string& input, const std::string& other) {
  std::string out = input;
  if (LLVMFuzzerCustomMutator && mutator->below(4)) {
    out.resize(kMostBytes);
    out.resize(LLVMFuzzerCustomMutator(reinterpret_cast<uint8_t*>(out.data()), input.size(), kMostBytes,
                                       static_cast<unsigned>(mutator->below(UINT32_MAX))));
  } else {
    mutator->bytes(out, other);
  }
  if (out.size() > kMostBytes) out.resize(kMostBytes);
  return out;
}

}  // namespace

// What a custom mutator calls for a mutation of plain bytes.
extern "C" size_t LLVMFuzzerMutate(uint8_t* data, size_t size, size_t most) {
  std::string bytes(reinterpret_cast<char*>(data), size);
  mutator->bytes(bytes);
  if (bytes.size() > most) bytes.resize(most);
  std::memcpy(data, bytes.data(), bytes.size());
  return bytes.size();
}

int main(int argc, char** argv) {
  double seconds = 30;
  uint64_t seed = 1;
  std::string prefix;
  std::vector<std::string> paths;
  for (int i = 1; i < argc; ++i) {
    const std::string_view arg = argv[i];
    auto value = [&](std::string_view flag) {
      return arg.starts_with(flag) ? argv[i] + flag.size() : nullptr;
    };
    if (const char* v = value("-max_total_time="))
      seconds = std::atof(v);
    else if (const char* s = value("-seed="))
      seed = std::strtoull(s, nullptr, 10);
    else if (const char* p = value("-artifact_prefix="))
      prefix = p;
    else if (!arg.starts_with("-"))
      paths.emplace_back(arg);
  }
  pelton::fuzz::Mutator source(seed);
  mutator = &source;
  std::vector<std::string> inputs = read_inputs(paths);
  std::signal(SIGALRM, too_slow);
  Running running(prefix + "running");
  const auto end = Clock::now() + std::chrono::duration<double>(seconds);
  uint64_t runs = 0;
  for (const std::string& input : inputs) running.run(input), ++runs;
  if (inputs.empty()) inputs.emplace_back();
  const size_t given = inputs.size();
  while (Clock::now() < end) {
    std::string next = mutated(inputs[source.below(inputs.size())], inputs[source.below(inputs.size())]);
    const uint64_t before = pelton::fuzz::accepted;
    running.run(next);
    ++runs;
    if (pelton::fuzz::accepted != before && inputs.size() < given + kMostKept)
      inputs.push_back(std::move(next));
  }
  std::fprintf(stderr, "stat::number_of_executed_units: %llu\n%zu inputs were accepted\n",
               static_cast<unsigned long long>(runs), inputs.size() - given);
  return 0;
}
