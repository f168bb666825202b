// SPDX-License-Identifier: Apache-2.0
// COCO annotations: boxes f32 [n, 4] (x0, y0, x1, y1), box_labels i64 [n], box_areas f32 [n], box_crowd u8
// [n]; masks u8 [n, h, w] from polygons or run lengths, and keypoints f32 [n, k, 3], when asked for.
#include <algorithm>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>

#include "base/hash.h"
#include "base/json_number.h"
#include "data/source/source.h"

namespace pelton::data {
namespace {

using Json = nlohmann::json;

constexpr int64_t kMostPixels = 178'956'970;      // of a picture
constexpr int64_t kMostMasks = int64_t{1} << 31;  // bytes of one picture's masks

// Coordinates: a picture has at most 2^20 pixels a side, so what lies this far out is damage.
double coordinate(const Json& j) {
  const double v = j.get<double>();
  if (!(std::fabs(v) <= 0x1p24)) fail(ErrorCode::bad_format, cat("a coordinate is ", v));
  return v;
}
template <class T>
std::vector<T> coordinates(const Json& list) {
  std::vector<T> out;
  for (const Json& j : list) out.push_back(static_cast<T>(coordinate(j)));
  return out;
}

struct Object {
  float box[4];
  int64_t label;
  float area;
  bool crowd;
  std::vector<std::vector<double>> polygons;  // x, y, x, y, ...
  std::vector<int64_t> runs;                  // column-major, starting with zeros
  std::vector<float> keypoints;
};
struct Picture {
  std::string file;
  int64_t width = 0, height = 0;
  std::vector<Object> objects;
};

// Even-odd fill of the pixels whose centre lies inside.
void fill_polygon(const std::vector<double>& p, int64_t w, int64_t h, uint8_t* mask) {
  const size_t n = p.size() / 2;
  std::vector<double> crossings;
  for (int64_t y = 0; y < h; ++y) {
    crossings.clear();
    const double line = static_cast<double>(y) + 0.5;
    for (size_t i = 0, j = n - 1; i < n; j = i++) {
      const double y0 = p[2 * j + 1], y1 = p[2 * i + 1];
      if ((y0 <= line) != (y1 <= line))
        crossings.push_back(p[2 * j] + (line - y0) / (y1 - y0) * (p[2 * i] - p[2 * j]));
    }
    std::ranges::sort(crossings);
    for (size_t i = 0; i + 1 < crossings.size(); i += 2) {
      const int64_t from = std::clamp<int64_t>(static_cast<int64_t>(std::ceil(crossings[i] - 0.5)), 0, w);
      const int64_t to = std::clamp<int64_t>(static_cast<int64_t>(std::ceil(crossings[i + 1] - 0.5)), 0, w);
      for (int64_t x = from; x < to; ++x) mask[y * w + x] = 1;
    }
  }
}

// The text form of run lengths: 5 bits a character, differences from the second-last run.
std::vector<int64_t> unpack_runs(const std::string& text, const std::string& where) {
  std::vector<int64_t> out;
  for (size_t at = 0; at < text.size();) {
    int64_t v = 0;
    int shift = 0;
    for (bool more = true; more; shift += 5) {
      if (at >= text.size() || shift > 55) fail(ErrorCode::bad_format, "damaged run-length text", where);
      const int c = text[at++] - 48;
      v |= static_cast<int64_t>(c & 31) << shift;
      more = c & 32;
      if (!more && (c & 16)) v |= -(int64_t{1} << (shift + 5));
    }
    if (out.size() > 2) v += out[out.size() - 2];
    if (v < 0 || v > kMostPixels) fail(ErrorCode::bad_format, cat("a run of ", v, " pixels"), where);
    out.push_back(v);
  }
  return out;
}

void fill_runs(const std::vector<int64_t>& runs, int64_t w, int64_t h, uint8_t* mask) {
  int64_t at = 0;
  for (size_t i = 0; i < runs.size(); ++i)
    for (int64_t k = 0; k < runs[i] && at < w * h; ++k, ++at)
      if (i & 1) mask[at % h * w + at / h] = 1;
}

class Coco : public Source {
 public:
  Coco(const Args& a, const std::string& base)
      : root_(below(base, a.text("images"))),
        path_(below(base, a.text("annotations"))),
        masks_(a.boolean("masks")),
        keypoints_(a.boolean("keypoints")) {
    const Json all = Json::parse(whole_text(path_), nullptr, false);
    if (all.is_discarded() || !all.is_object()) fail(ErrorCode::bad_format, "not a JSON object", path_);
    try {
      with_place(path_, [&] { load(all, a.boolean("skip_empty")); });
    } catch (const Json::exception& e) {
      fail(ErrorCode::bad_format, cat("not COCO annotations: ", e.what()), path_);
    }
    if (pictures_.empty()) fail(ErrorCode::not_found, "the annotations name no pictures", path_);
  }
  int64_t size() const override { return static_cast<int64_t>(pictures_.size()); }
  std::vector<std::string> classes() const override { return classes_; }
  std::string identity() const override {
    std::string names;
    for (const Picture& p : pictures_) append(names, cat(p.file, "\n"));
    return cat("coco ", pictures_.size(), " ", objects_, " ", checksum(names).str());
  }
  Sample read(int64_t index) const override {
    const Picture& p = pictures_[static_cast<size_t>(index)];
    Sample s;
    s.index = index;
    s.origin.file = below(root_, p.file);
    s.set("image", whole_file(s.origin.file));
    const int64_t n = static_cast<int64_t>(p.objects.size());
    Tensor boxes(DType::f32, {n, 4}), labels(DType::i64, {n}), areas(DType::f32, {n}), crowd(DType::u8, {n});
    for (int64_t i = 0; i < n; ++i) {
      const Object& o = p.objects[static_cast<size_t>(i)];
      std::copy_n(o.box, 4, boxes.as_mutable<float>() + 4 * i);
      labels.as_mutable<int64_t>()[i] = o.label;
      areas.as_mutable<float>()[i] = o.area;
      crowd.as_mutable<uint8_t>()[i] = o.crowd;
    }
    s.set("boxes", boxes);
    s.set("box_labels", labels);
    s.set("box_areas", areas);
    s.set("box_crowd", crowd);
    if (masks_) s.set("masks", masks(p));
    if (keypoints_) {
      Tensor points = Tensor::zeros(DType::f32, {n, points_ / 3, 3});
      for (int64_t i = 0; i < n; ++i)
        std::ranges::copy(p.objects[static_cast<size_t>(i)].keypoints,
                          points.as_mutable<float>() + i * points_);
      s.set("keypoints", points);
    }
    return s;
  }

 private:
  static Tensor masks(const Picture& p) {
    const int64_t n = static_cast<int64_t>(p.objects.size());
    if (n > kMostMasks / (p.width * p.height))
      fail(ErrorCode::limit,
           cat("masks of ", n, " objects in ", p.width, "x", p.height, " pixels take more than ", kMostMasks,
               " bytes"),
           p.file, "leave 'masks' out");
    Tensor out = Tensor::zeros(DType::u8, {n, p.height, p.width});
    for (int64_t i = 0; i < n; ++i) {
      const Object& o = p.objects[static_cast<size_t>(i)];
      uint8_t* mask = out.as_mutable<uint8_t>() + i * p.height * p.width;
      for (const auto& polygon : o.polygons) fill_polygon(polygon, p.width, p.height, mask);
      fill_runs(o.runs, p.width, p.height, mask);
    }
    return out;
  }

  void load(const Json& all, bool skip_empty) {
    std::map<int64_t, int64_t> category;  // id to label: categories sorted by id
    for (const Json& c : all.at("categories")) category[json_integer(c.at("id"))] = 0;
    std::map<int64_t, std::string> names;
    for (const Json& c : all.at("categories"))
      names[json_integer(c.at("id"))] = c.at("name").get<std::string>();
    for (auto& [id, label] : category) {
      label = static_cast<int64_t>(classes_.size());
      classes_.push_back(names[id]);
    }
    std::map<int64_t, size_t> by_id;
    for (const Json& i : all.at("images")) {
      by_id[json_integer(i.at("id"))] = pictures_.size();
      Picture p{i.at("file_name").get<std::string>(),
                json_integer(i.at("width")),
                json_integer(i.at("height")),
                {}};
      check_size(p.width, p.height, kMostPixels, p.file);
      pictures_.push_back(std::move(p));
    }
    for (const Json& a : all.at("annotations")) {
      auto at = by_id.find(json_integer(a.at("image_id")));
      auto label = category.find(json_integer(a.at("category_id")));
      const std::string place = cat("annotation ", a.contains("id") ? json_integer(a.at("id")) : -1);
      if (at == by_id.end())
        fail(ErrorCode::bad_format, cat("image_id ", a.at("image_id").dump(), " names no image"), place);
      if (label == category.end())
        fail(ErrorCode::bad_format, cat("category_id ", a.at("category_id").dump(), " names no category"),
             place);
      Object o{};
      const auto box = coordinates<float>(a.at("bbox"));
      if (box.size() != 4)
        fail(ErrorCode::bad_format, cat("bbox has ", box.size(), " numbers, not 4"), place);
      const float corners[4] = {box[0], box[1], box[0] + box[2], box[1] + box[3]};
      std::copy_n(corners, 4, o.box);
      o.label = label->second;
      o.area = a.value("area", 0.f);
      o.crowd = a.contains("iscrowd") && json_integer(a.at("iscrowd")) != 0;
      if (keypoints_ && a.contains("keypoints")) o.keypoints = coordinates<float>(a.at("keypoints"));
      if (o.keypoints.size() % 3)
        fail(ErrorCode::bad_format, cat("keypoints has ", o.keypoints.size(), " numbers, not three a point"),
             place);
      points_ = std::max(points_, std::ssize(o.keypoints));
      if (masks_ && a.contains("segmentation"))
        segmentation(a.at("segmentation"), pictures_[at->second], o, place);
      pictures_[at->second].objects.push_back(std::move(o));
      ++objects_;
    }
    if (skip_empty) std::erase_if(pictures_, [](const Picture& p) { return p.objects.empty(); });
  }

  static void segmentation(const Json& s, const Picture& p, Object& o, const std::string& place) {
    if (s.is_object()) {
      if (s.contains("size") && json_integers(s.at("size")) != std::vector<int64_t>{p.height, p.width})
        fail(ErrorCode::bad_format,
             cat("run lengths of a picture of another size than ", p.width, "x", p.height), place);
      const Json& counts = s.at("counts");
      o.runs = counts.is_string() ? unpack_runs(counts.get<std::string>(), place) : json_integers(counts);
      return;
    }
    for (const Json& polygon : s) {
      o.polygons.push_back(coordinates<double>(polygon));
      if (o.polygons.back().size() % 2)
        fail(ErrorCode::bad_format, "a polygon has an odd number of coordinates", place);
      if (o.polygons.back().size() < 6) o.polygons.pop_back();  // a point or a line covers nothing
    }
  }

  std::string root_, path_;
  bool masks_, keypoints_;
  std::vector<Picture> pictures_;
  std::vector<std::string> classes_;
  int64_t objects_ = 0;
  int64_t points_ = 0;  // numbers of the object with most key points; all samples have so many
};

}  // namespace

std::vector<SourceKind> coco_source_kinds() {
  using T = OptionType;
  return {{{"coco",
            "pictures with COCO annotations; fields image, boxes, box_labels, box_areas, box_crowd, masks, "
            "keypoints",
            {{"images", T::text, {}, "the folder of the pictures"},
             {"annotations", T::text, {}, "the JSON file"},
             {"masks", T::boolean, false, "draw a mask for each object"},
             {"keypoints", T::boolean, false, "read key points"},
             {"skip_empty", T::boolean, false, "leave out pictures without objects"}}},
           [](const Args& a, const std::string& base) -> std::unique_ptr<Source> {
             return std::make_unique<Coco>(a, base);
           }}};
}

}  // namespace pelton::data
