// SPDX-License-Identifier: Apache-2.0
// One file a sample: a folder with a sub-folder for each class, or a text file that lists paths.
#include <algorithm>
#include <charconv>
#include <filesystem>

#include "base/file.h"
#include "base/hash.h"
#include "data/source/source.h"

namespace pelton::data {
namespace {

namespace fs = std::filesystem;

struct Entry {
  std::string path;    // below the root
  int64_t label = -1;  // -1: none
};

class Files : public Source {
 public:
  Files(std::string root, std::string field, std::vector<Entry> entries, std::vector<std::string> classes)
      : root_(std::move(root)),
        field_(std::move(field)),
        entries_(std::move(entries)),
        classes_(std::move(classes)) {}
  int64_t size() const override { return static_cast<int64_t>(entries_.size()); }
  Sample read(int64_t index) const override {
    const Entry& e = entries_[static_cast<size_t>(index)];
    Sample s;
    s.index = index;
    s.origin.file = below(root_, e.path);
    s.set(field_, whole_file(s.origin.file));
    if (e.label >= 0) s.set("label", label_tensor(e.label));
    return s;
  }
  std::vector<std::string> classes() const override { return classes_; }
  int64_t stored_bytes(int64_t index) const override {
    std::error_code error;  // a file that is gone is told when it is read
    const auto n = fs::file_size(below(root_, entries_[static_cast<size_t>(index)].path), error);
    return error ? 0 : static_cast<int64_t>(n);
  }
  std::string identity() const override {
    std::string all;
    for (const Entry& e : entries_) append(all, cat(e.path, "\n", e.label, "\n"));
    return cat("files ", size(), " ", checksum(all).str());
  }

 private:
  std::string root_, field_;
  std::vector<Entry> entries_;
  std::vector<std::string> classes_;
};

bool wanted(const fs::path& p, const std::vector<std::string>& extensions) {
  std::string name = p.filename().string();
  if (name.starts_with('.')) return false;
  if (extensions.empty()) return true;
  std::string ext = p.extension().string();
  std::ranges::transform(ext, ext.begin(), [](unsigned char c) { return std::tolower(c); });
  return std::ranges::find(extensions, ext) != extensions.end();
}

std::vector<std::string> files_below(const fs::path& root, const fs::path& folder,
                                     const std::vector<std::string>& extensions) {
  std::vector<std::string> out;
  std::error_code error;
  for (fs::recursive_directory_iterator it(folder, fs::directory_options::follow_directory_symlink, error),
       end;
       it != end && !error; it.increment(error))
    if (it->is_regular_file(error) && wanted(it->path(), extensions))
      out.push_back(it->path().lexically_relative(root).string());
  if (error) fail(ErrorCode::io, cat("cannot list the folder: ", error.message()), folder.string());
  std::ranges::sort(out);
  return out;
}

std::unique_ptr<Source> make_folder(const Args& a, const std::string& base) {
  const fs::path root = below(base, a.text("path"));
  if (!folder_exists(root.string()))
    fail(ErrorCode::not_found, "there is no such folder", root.string(), "check 'path' of the source");
  std::vector<std::string> extensions = a.texts("extensions"), classes;
  std::vector<Entry> entries;
  if (a.boolean("labels")) {
    std::error_code error, none;
    for (fs::directory_iterator d(root, error), end; d != end && !error; d.increment(error))
      if (d->is_directory(none) && !d->path().filename().string().starts_with('.'))
        classes.push_back(d->path().filename().string());
    if (error) fail(ErrorCode::io, cat("cannot list the folder: ", error.message()), root.string());
    std::ranges::sort(classes);
    if (!a.texts("classes").empty()) {
      for (const auto& c : a.texts("classes"))
        if (std::ranges::find(classes, c) == classes.end())
          fail(ErrorCode::not_found, cat("there is no folder for the class '", c, "'"), root.string());
      classes = a.texts("classes");
    }
    for (size_t i = 0; i < classes.size(); ++i)
      for (auto& p : files_below(root, root / classes[i], extensions))
        entries.push_back({std::move(p), static_cast<int64_t>(i)});
    if (classes.empty())
      fail(ErrorCode::not_found, "the folder has no sub-folders to take classes from", root.string(),
           "set labels = false for a flat folder");
  } else {
    for (auto& p : files_below(root, root, extensions)) entries.push_back({std::move(p), -1});
  }
  if (entries.empty())
    fail(ErrorCode::not_found, "the folder holds no files to read", root.string(),
         "check 'path' and 'extensions'");
  return std::make_unique<Files>(root.string(), a.text("field"), std::move(entries), std::move(classes));
}

// Lines "path", "path label" or "path<TAB>label"; # starts a comment line.
std::unique_ptr<Source> make_list(const Args& a, const std::string& base) {
  const std::string path = below(base, a.text("path"));
  const std::string text = whole_text(path);
  std::vector<Entry> entries;
  int64_t line_number = 0;
  for (size_t at = 0; at < text.size();) {
    size_t end = std::min(text.find('\n', at), text.size());
    std::string_view line = std::string_view(text).substr(at, end - at);
    at = end + 1;
    ++line_number;
    while (!line.empty() && (line.back() == '\r' || line.back() == ' ')) line.remove_suffix(1);
    if (line.empty() || line[0] == '#') continue;
    Entry e{std::string(line), -1};
    if (size_t space = line.find_last_of("\t "); space != line.npos) {
      std::string_view tail = line.substr(space + 1);
      int64_t label = 0;
      auto r = std::from_chars(tail.data(), tail.data() + tail.size(), label);
      if (r.ec == std::errc() && r.ptr == tail.data() + tail.size()) {
        if (label < 0)
          fail(ErrorCode::bad_format, cat("label ", label, " is negative"), cat(path, " line ", line_number));
        e = {std::string(line.substr(0, line.find_last_not_of("\t ", space) + 1)), label};
      } else if (a.boolean("labels")) {
        fail(ErrorCode::bad_format, cat("'", tail, "' is not a label"), cat(path, " line ", line_number),
             "write: path label, or set labels = false");
      }
    }
    if (a.boolean("labels") && e.label < 0)
      fail(ErrorCode::bad_format, "the line has no label", cat(path, " line ", line_number),
           "write: path label, or set labels = false");
    entries.push_back(std::move(e));
  }
  if (entries.empty()) fail(ErrorCode::not_found, "the list names no files", path);
  const std::string root =
      a.has("root") ? below(base, a.text("root")) : fs::path(path).parent_path().string();
  return std::make_unique<Files>(root, a.text("field"), std::move(entries), std::vector<std::string>{});
}

}  // namespace

std::vector<SourceKind> file_source_kinds() {
  using T = OptionType;
  return {{{"folder",
            "a folder of files, one sub-folder for each class",
            {{"path", T::text, {}, "the folder"},
             {"labels", T::boolean, true,
              "sub-folders are classes, numbered in sorted order; false: a plain tree of files"},
             {"classes",
              T::texts,
              {},
              "the classes in the order of their numbers, instead of all sub-folders sorted",
              kAny,
              kNone,
              {},
              false,
              true},
             {"extensions",
              T::texts,
              {},
              "only files with these lower-case endings, such as \".jpg\"",
              kAny,
              kNone,
              {},
              false,
              true},
             {"field", T::text, "image", "name of the field that holds the file's bytes"}}},
           make_folder},
          {{"list",
            "files named in a text file, one a line, each with an optional label after a space or tab",
            {{"path", T::text, {}, "the text file"},
             {"root",
              T::text,
              {},
              "folder that relative paths start from (default: that of the text file)",
              kAny,
              kNone,
              {},
              false,
              true},
             {"labels", T::boolean, true, "every line ends with a label"},
             {"field", T::text, "image", "name of the field that holds the file's bytes"}}},
           make_list}};
}

}  // namespace pelton::data
