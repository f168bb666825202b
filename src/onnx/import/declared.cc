// SPDX-License-Identifier: Apache-2.0
#include "onnx/import/declared.h"

#include "base/log.h"
#include "tensor/tensor_pb.h"

namespace pelton::onnx {
namespace {

using Kind = TypeView::Kind;

// Only where the declaration says something: files may leave out types, and maps have no type of ours.
bool agrees(const TypeView& declared, const ir::Type& found) {
  switch (declared.kind) {
    case Kind::tensor:
    case Kind::sparse_tensor: {
      const auto dtype = dtype_from_onnx(declared.elem_type);
      return found.is_tensor() && (!dtype || *dtype == found.dtype);
    }
    case Kind::sequence:
      if (declared.element && declared.element->kind == Kind::map)  // ZipMap keeps the matrix behind the maps
        return found.is_tensor() && (!declared.element->element || agrees(*declared.element->element, found));
      return found.kind == ir::TypeKind::sequence &&
             (!declared.element || !found.element || agrees(*declared.element, *found.element));
    case Kind::optional:  // a value that is there for certain need not be wrapped
      if (!declared.element) return true;
      if (found.kind != ir::TypeKind::optional) return agrees(*declared.element, found);
      return !found.element || agrees(*declared.element, *found.element);
    default:
      return true;
  }
}

std::string words(const TypeView& declared) {
  switch (declared.kind) {
    case Kind::sequence:
      return cat("a sequence of ", declared.element ? words(*declared.element) : "something");
    case Kind::optional:
      return cat("an optional ", declared.element ? words(*declared.element) : "something");
    case Kind::tensor:
    case Kind::sparse_tensor:
      return onnx_type_name(declared.elem_type);
    case Kind::map:
      return cat("a map to ", declared.element ? words(*declared.element) : "something");
    default:
      return "another kind";
  }
}

std::string sizes_of(const std::vector<DimView>& dims) {
  std::string out;
  for (const DimView& d : dims)
    append(out, cat(out.empty() ? "" : ",", d.value           ? cat(*d.value)
                                            : d.param.empty() ? "?"
                                                              : std::string(d.param)));
  return cat("[", out, "]");
}

}  // namespace

void require_declared_type(const TypeView& declared, const ir::Type& found, std::string_view name) {
  if (agrees(declared, found)) return;
  fail(ErrorCode::bad_type,
       cat("the model declares '", name, "' as ", words(declared), ", but its nodes yield ", found.str()),
       cat("output '", name, "'"), "correct the declared type, or add a Cast");
}

void warn_of_declared_sizes(const TypeView& declared, const ir::Type& found, std::string_view name,
                            const SymbolRanges& ranges) {
  if (declared.kind != Kind::tensor || !declared.has_shape || !found.is_tensor() || !found.ranked) return;
  if (onnx_is_complex(declared.elem_type)) return;  // ours has one more axis
  bool differs = declared.dims.size() != found.shape.size();
  for (size_t d = 0; !differs && d < found.shape.size(); ++d)
    differs = declared.dims[d].value && *declared.dims[d].value >= 0 &&
              equal(found.shape[d], *declared.dims[d].value, ranges) == Tri::no;
  if (differs)
    log_warn("the model declares output '", name, "' with sizes ", sizes_of(declared.dims),
             ", its nodes yield ", found.str(), ", which holds");
}

}  // namespace pelton::onnx
