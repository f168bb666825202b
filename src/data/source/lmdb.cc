// SPDX-License-Identifier: Apache-2.0
// LMDB databases, with Caffe's Datum messages as values or any other bytes. The library maps the file and
// trusts what it reads there: take databases only from where you would take a program.
#include <algorithm>
#include <cstring>
#include <filesystem>

#include "data/source/datum.h"
#include "data/source/source.h"
#if PELTON_HAVE_LMDB
#include <lmdb.h>

#include <cerrno>
#endif

namespace pelton::data {

#if PELTON_HAVE_LMDB
namespace {

void check(int code, const char* what, const std::string& where) {
  if (code == 0) return;
  const ErrorCode kind = code == ENOENT         ? ErrorCode::not_found
                         : code > 0             ? ErrorCode::io
                         : code == MDB_NOTFOUND ? ErrorCode::not_found
                                                : ErrorCode::bad_format;
  fail(kind, cat("cannot ", what, ": ", mdb_strerror(code)), where);
}

struct CloseEnv {
  void operator()(MDB_env* e) const { mdb_env_close(e); }
};
struct EndTxn {
  void operator()(MDB_txn* t) const { mdb_txn_abort(t); }
};
using Txn = std::unique_ptr<MDB_txn, EndTxn>;

class Lmdb : public Source {
 public:
  Lmdb(const Args& a, const std::string& base)
      : path_(below(base, a.text("path"))), datum_(a.boolean("datum")) {
    MDB_env* env = nullptr;
    check(mdb_env_create(&env), "start LMDB", path_);
    env_.reset(env);
    const bool file = !is_folder(path_);
    check(mdb_env_open(env, path_.c_str(),
                       MDB_RDONLY | MDB_NOLOCK | MDB_NOTLS | MDB_NORDAHEAD |
                           (file ? static_cast<unsigned>(MDB_NOSUBDIR) : 0u),
                       0),
          "open the database", path_);
    const Txn txn = begin();
    check(mdb_dbi_open(txn.get(), nullptr, 0, &table_), "open its table", path_);
    MDB_cursor* cursor = nullptr;
    check(mdb_cursor_open(txn.get(), table_, &cursor), "walk it", path_);
    std::unique_ptr<MDB_cursor, void (*)(MDB_cursor*)> close(cursor, mdb_cursor_close);
    MDB_val key, value;
    for (int code = mdb_cursor_get(cursor, &key, &value, MDB_FIRST); code != MDB_NOTFOUND;
         code = mdb_cursor_get(cursor, &key, &value, MDB_NEXT)) {
      check(code, "walk it", path_);
      keys_.emplace_back(static_cast<const char*>(key.mv_data), key.mv_size);
    }
    if (keys_.empty()) fail(ErrorCode::not_found, "the database holds no records", path_);
  }
  int64_t size() const override { return static_cast<int64_t>(keys_.size()); }
  std::string identity() const override {
    return cat("lmdb ", keys_.size(), " ", keys_.front(), " ", keys_.back());
  }

  Sample read(int64_t index) const override {
    const std::string& name = keys_[static_cast<size_t>(index)];
    Sample s;
    s.index = index;
    s.origin = {path_, cat("key ", printable(name)), -1};
    const Txn txn = begin();
    MDB_val key{name.size(), const_cast<char*>(name.data())}, value;
    check(mdb_get(txn.get(), table_, &key, &value), "read the record", s.origin.str());
    Tensor bytes(DType::u8, {static_cast<int64_t>(value.mv_size)});
    if (value.mv_size) std::memcpy(bytes.mutable_data(), value.mv_data, value.mv_size);
    if (datum_)
      with_place(s.origin.str(), [&] {
        read_datum({reinterpret_cast<const char*>(bytes.data()), static_cast<size_t>(bytes.count())}, s);
      });
    else
      s.set("data", std::move(bytes));
    return s;
  }

 private:
  static bool is_folder(const std::string& path) {
    std::error_code ec;
    return std::filesystem::is_directory(path, ec);
  }
  static std::string printable(std::string name) {
    std::ranges::replace_if(
        name, [](unsigned char c) { return c < 32 || c > 126; }, '?');
    return name;
  }
  Txn begin() const {
    MDB_txn* txn = nullptr;
    check(mdb_txn_begin(env_.get(), nullptr, MDB_RDONLY, &txn), "read", path_);
    return Txn(txn);
  }

  std::string path_;
  bool datum_;
  std::unique_ptr<MDB_env, CloseEnv> env_;
  MDB_dbi table_ = 0;
  std::vector<std::string> keys_;
};

}  // namespace
#endif

std::vector<SourceKind> lmdb_source_kinds() {
  using T = OptionType;
  return {{{"lmdb",
            "an LMDB database; Caffe's Datum values become image and label, others field data u8 [bytes]",
            {{"path", T::text, {}, "its folder, or its one file"},
             {"datum", T::boolean, true, "values are Datum messages"}}},
           [](const Args& a, const std::string& base) -> std::unique_ptr<Source> {
#if PELTON_HAVE_LMDB
             return std::make_unique<Lmdb>(a, base);
#else
             fail(ErrorCode::unsupported_op,
                  cat("this build cannot read LMDB (", below(base, a.text("path")), ")"), a.where(),
                  "install liblmdb and rebuild, or convert to tar shards");
#endif
           }}};
}

}  // namespace pelton::data
