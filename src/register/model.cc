// SPDX-License-Identifier: Apache-2.0
#include "register/model.h"

#include <fcntl.h>
#include <unistd.h>

#include <filesystem>

#include "base/file.h"
#include "ir/text.h"
#include "ir/verify.h"
#include "register/registry.h"
#include "runtime/plan_file.h"

namespace pelton {
namespace {

constexpr uint64_t kMaxTextBytes = uint64_t{1} << 28;

std::string first_bytes(const std::string& path, size_t count) {
  MappedFile file(path);
  auto bytes = file.bytes().first(std::min(count, file.bytes().size()));
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

}  // namespace

FileKind kind_of_file(const std::string& path) {
  std::string head = first_bytes(path, 256);
  if (head.empty()) fail(ErrorCode::bad_format, "the file is empty", path);
  if (runtime::is_plan(head)) return FileKind::plan;
  if (head.rfind("version https://git-lfs", 0) == 0)
    fail(ErrorCode::bad_format, "the file is a Git LFS pointer, not the model itself", path,
         "run git lfs pull");
  size_t at = head.find_first_not_of(" \t\r\n");
  while (at != head.npos && head[at] == '#') {
    at = head.find('\n', at);
    if (at != head.npos) at = head.find_first_not_of(" \t\r\n", at);
  }
  if (at != head.npos && (head.compare(at, 6, "graph ") == 0)) return FileKind::ir_text;
  return FileKind::onnx;
}

Model load_model(const std::string& path, const CompileOptions&) {
  Model model;
  model.name = std::filesystem::path(path).filename().string();
  switch (kind_of_file(path)) {
    case FileKind::plan:
      fail(ErrorCode::usage, "the file is a plan, not a model", path);
    case FileKind::ir_text:
      model.format = "ir";
      with_place(path, [&] {
        model.graph = ir::parse_graph(read_file(path, kMaxTextBytes));
        ir::verify(model.graph, "import");
      });
      break;
    case FileKind::onnx:
      fail(ErrorCode::bad_format, "the file is no plan and no IR text", path);
  }
  return model;
}

runtime::Plan compile_model(Model model, const device::Target& target, const CompileOptions& options) {
  runtime::Plan plan;
  plan.graph = std::move(model.graph);
  plan.choices = runtime::choose_all(plan.graph, registry(), target);
  plan.target = target;
  plan.precision = options.precision;
  plan.source = model.name;
  return plan;
}

std::shared_ptr<const runtime::Plan> open_plan(const std::string& path, const device::Target& target,
                                               const CompileOptions& options) {
  if (kind_of_file(path) == FileKind::plan) return runtime::load_plan(path);
  return std::make_shared<runtime::Plan>(compile_model(load_model(path, options), target, options));
}

}  // namespace pelton
