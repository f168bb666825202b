// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "backend/kernel.h"

namespace pelton::backend {

void Registry::add(Implementation implementation) {
  if (find(implementation.name))
    fail(ErrorCode::bad_name, cat("implementation '", implementation.name, "' exists already"));
  PELTON_CHECK(implementation.refuse && implementation.prepare, implementation.name);
  items_.push_back(std::make_unique<Implementation>(std::move(implementation)));
}

std::vector<const Implementation*> Registry::candidates(std::string_view op, device::Kind kind) const {
  std::vector<const Implementation*> out;
  for (const auto& item : items_)
    if (item->device == kind && std::find(item->ops.begin(), item->ops.end(), op) != item->ops.end())
      out.push_back(item.get());
  return out;
}

const Implementation* Registry::find(std::string_view name) const {
  for (const auto& item : items_)
    if (item->name == name) return item.get();
  return nullptr;
}

std::vector<const Implementation*> Registry::all() const {
  std::vector<const Implementation*> out;
  for (const auto& item : items_) out.push_back(item.get());
  return out;
}

void Registry::add_device(device::Kind kind, OpenDevice open) {
  devices_.emplace_back(kind, open);
}

std::shared_ptr<device::Device> Registry::open(const device::Target& target) const {
  for (const auto& [kind, open] : devices_)
    if (kind == target.kind) return open(target);
  fail(ErrorCode::no_device,
       cat("this build runs nothing on a device of kind ", device::to_string(target.kind)),
       cat("target ", target.name), "use --device cpu");
}

}  // namespace pelton::backend
