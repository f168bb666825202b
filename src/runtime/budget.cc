// SPDX-License-Identifier: Apache-2.0
#include "runtime/budget.h"

#include "base/error.h"

namespace pelton::runtime {

void Budget::take(int64_t bytes, int64_t also, std::string_view what) {
  int64_t used = used_bytes_ += bytes;
  if (limit_bytes_ <= 0 || used + also <= limit_bytes_) return;
  used_bytes_ -= bytes;
  fail(ErrorCode::limit,
       cat(what, " needs ", bytes, " bytes on top of ", used - bytes + also, ", the memory budget is ",
           limit_bytes_),
       "", "raise the budget, or use smaller inputs or fewer contexts");
}

}  // namespace pelton::runtime
