// SPDX-License-Identifier: Apache-2.0
#include "onnx/import/import.h"

#include "ir/verify.h"
#include "onnx/import/importer.h"

namespace pelton::onnx {

Imported import_bytes(std::string_view bytes, std::shared_ptr<const void> owner, const std::string& folder,
                      const ImportOptions& options) {
  ModelView view = parse_model(bytes);
  ExternalFiles external(folder);
  Imported out;
  Importer importer(view, {std::move(owner), folder.empty() ? nullptr : &external}, options);
  out.graph = importer.run();
  out.fixed_inputs = importer.fixed_inputs(out.graph);
  ir::verify(out.graph, "import");
  out.ir_version = view.ir_version;
  for (auto [domain, version] : view.opsets) out.opsets[std::string(domain)] = version;
  if (auto it = view.opsets.find(""); it != view.opsets.end()) out.opset = it->second;
  out.producer = cat(view.producer_name, view.producer_version.empty() ? "" : " ", view.producer_version);
  out.doc = view.doc_string;
  for (auto [key, value] : view.metadata) out.metadata[std::string(key)] = std::string(value);
  return out;
}

Imported import_file(const std::string& path, const ImportOptions& options) {
  return with_place(path, [&] {
    auto file = std::make_shared<MappedFile>(path);
    std::string_view bytes(reinterpret_cast<const char*>(file->bytes().data()), file->bytes().size());
    size_t slash = path.find_last_of('/');
    return import_bytes(bytes, file, slash == path.npos ? "." : path.substr(0, slash + 1), options);
  });
}

}  // namespace pelton::onnx
