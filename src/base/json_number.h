// SPDX-License-Identifier: Apache-2.0
// Whole numbers out of JSON that others wrote. The library's own get<int64_t>() converts whatever number is
// there: fractions are cut, and what an integer cannot hold is undefined behaviour.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <vector>

namespace pelton {

// bad_format errors with the value; 3.0 is a whole number, as JSON does not tell it from 3. The caller adds
// the place.
int64_t json_integer(const nlohmann::json& j);
int64_t json_integer(const nlohmann::ordered_json& j);
uint64_t json_unsigned(const nlohmann::json& j);
std::vector<int64_t> json_integers(const nlohmann::json& list);

}  // namespace pelton
