// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <functional>

#include "data/codec/jpeg.h"
#include "data/tools/tools.h"

namespace pelton::data {
namespace {

std::string base64(const std::vector<uint8_t>& b) {
  static constexpr char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string out;
  for (size_t i = 0; i < b.size(); i += 3) {
    const uint32_t v = static_cast<uint32_t>(b[i]) << 16 | (i + 1 < b.size() ? b[i + 1] << 8 : 0) |
                       (i + 2 < b.size() ? b[i + 2] : 0);
    for (size_t k = 0; k < 4; ++k) out.push_back(i + k > b.size() ? '=' : digits[v >> (18 - 6 * k) & 63]);
  }
  return out;
}

std::string escaped(std::string_view s) {
  std::string out;
  for (char c : s) {
    if (c == '<')
      out += "&lt;";
    else if (c == '>')
      out += "&gt;";
    else if (c == '&')
      out += "&amp;";
    else if (c == '"')
      out += "&quot;";
    else
      out.push_back(c);
  }
  return out;
}

std::string class_name(const std::vector<std::string>& classes, int64_t label) {
  return label >= 0 && label < static_cast<int64_t>(classes.size()) ? classes[static_cast<size_t>(label)]
                                                                    : cat(label);
}

struct Rgb {
  int r, g, b;
};
// Where a signal's value lies in a drawing of 80 units, 0 in the middle.
int fixed_level(float v) {
  return static_cast<int>(std::lround(40 - 38 * std::clamp(v, -1.f, 1.f)));
}

// A colour a class, told apart on light and dark pictures.
Rgb class_colour(int64_t label) {
  constexpr Rgb colours[] = {{230, 25, 75},  {0, 130, 200}, {60, 180, 75},  {245, 130, 48},
                             {145, 30, 180}, {0, 160, 160}, {240, 50, 230}, {170, 110, 40}};
  return colours[static_cast<size_t>(label < 0 ? 0 : label) % std::size(colours)];
}
std::string css(Rgb c) {
  return cat("rgb(", c.r, ",", c.g, ",", c.b, ")");
}

int64_t object_label(Sample& s, int64_t object) {
  const Tensor* labels = s.find("box_labels");
  return labels && object < labels->count() ? labels->get_int(object) : -1;
}

// Masks as a tint of their pixels.
Tensor tinted(Sample& s, Tensor pixels) {
  const Tensor* masks = s.find("masks");
  const Dims d = pixels.dims();
  if (!masks || d[2] != 3 || masks->rank() != 3 || masks->dims()[1] != d[0] || masks->dims()[2] != d[1])
    return pixels;
  uint8_t* p = pixels.as_mutable<uint8_t>();
  const uint8_t* m = masks->as<uint8_t>();
  for (int64_t k = 0; k < masks->dims()[0]; ++k) {
    const Rgb c = class_colour(object_label(s, k));
    const int level[3] = {c.r, c.g, c.b};
    for (int64_t i = 0; i < d[0] * d[1]; ++i)
      for (int64_t j = 0; m[k * d[0] * d[1] + i] && j < 3; ++j)
        p[3 * i + j] = static_cast<uint8_t>((3 * p[3 * i + j] + 2 * level[j]) / 5);
  }
  return pixels;
}

std::string overlay(Sample& s, int w, int h, const std::vector<std::string>& classes) {
  const Tensor *boxes = s.find("boxes"), *points = s.find("keypoints");
  std::string out;
  for (int64_t i = 0; boxes && i < boxes->dims()[0]; ++i) {
    const float* b = boxes->as<float>() + 4 * i;
    const int64_t label = object_label(s, i);
    append(out, cat("<rect style=\"stroke:", css(class_colour(label)), "\" x=\"", b[0], "\" y=\"", b[1],
                    "\" width=\"", b[2] - b[0], "\" height=\"", b[3] - b[1], "\"/>"));
    if (label >= 0) {
      const double size = std::max(w, h) / 22.0;  // the same on pictures of any size
      append(out, cat("<text style=\"font-size:", size, "px;stroke-width:", size / 5, "px\" x=\"", b[0] + 2,
                      "\" y=\"", std::max<double>(b[1] + size, size), "\">",
                      escaped(class_name(classes, label)), "</text>"));
    }
  }
  if (points && points->rank() == 3)
    for (int64_t i = 0; i < points->count() / 3; ++i) {
      const float* p = points->as<float>() + 3 * i;
      if (p[2] <= 0) continue;
      const int64_t object = i / std::max<int64_t>(1, points->dims()[1]);
      append(out, cat("<circle style=\"fill:", css(class_colour(object_label(s, object))), "\" cx=\"", p[0],
                      "\" cy=\"", p[1], "\" r=\"", std::max(w, h) / 90.0, "\"/>"));
    }
  return out.empty() ? out : cat("<svg viewBox=\"0 0 ", w, " ", h, "\">", out, "</svg>");
}

std::string picture(const Tensor& pixels, const std::string& over) {
  return cat("<div class=\"p\" style=\"aspect-ratio:", pixels.dims()[1], "/", pixels.dims()[0],
             "\"><img alt=\"\" src=\"data:image/jpeg;base64,", base64(jpeg_encode(pixels, 90)), "\">", over,
             "</div>");
}

// f32 [frequencies, frames] as levels, low frequencies at the bottom.
std::string spectrum(const Tensor& t) {
  const int64_t f = t.dims()[0], n = t.dims()[1];
  const float* v = t.as<float>();
  float low = v[0], high = v[0];
  for (int64_t i = 0; i < t.count(); ++i) low = std::min(low, v[i]), high = std::max(high, v[i]);
  Tensor out(DType::u8, {f, n, 1});
  for (int64_t k = 0; k < f; ++k)
    for (int64_t i = 0; i < n; ++i)
      out.as_mutable<uint8_t>()[(f - 1 - k) * n + i] =
          static_cast<uint8_t>(high > low ? 255 * (v[k * n + i] - low) / (high - low) : 0);
  return picture(out, "");
}

// f32 [samples] in -1..1: the extremes of 200 stretches.
std::string waveform(const Tensor& t) {
  constexpr int64_t kColumns = 200;
  std::string path;
  for (int64_t c = 0; c < kColumns; ++c) {
    const int64_t from = t.count() * c / kColumns, to = std::max(from + 1, t.count() * (c + 1) / kColumns);
    float low = 1, high = -1;
    for (int64_t i = from; i < std::min(to, t.count()); ++i)
      low = std::min(low, t.as<float>()[i]), high = std::max(high, t.as<float>()[i]);
    append(path, cat("M", c, " ", fixed_level(high), "V", fixed_level(low)));
  }
  return cat("<svg class=\"w\" viewBox=\"0 0 200 80\" preserveAspectRatio=\"none\"><path d=\"", path,
             "\"/></svg>");
}

// A number or a short text itself, else type and sizes.
std::string value_text(const Tensor& t) {
  if (t.count() != 1) return t.str();
  if (t.dtype() == DType::string) return escaped(t.strings()[0].substr(0, 200));
  return is_int(t.dtype()) ? cat(t.get_int(0)) : cat(t.get_double(0));
}

// What a label says: a class, or the largest shares of a soft one.
std::string label_text(const Tensor& t, const std::vector<std::string>& classes) {
  if (t.count() == 1 && is_int(t.dtype())) return class_name(classes, t.get_int(0));
  if (t.rank() != 1 || !is_float(t.dtype())) return t.str();
  std::vector<int64_t> order;
  for (int64_t i = 0; i < t.count(); ++i)
    if (t.get_double(i) >= 0.05) order.push_back(i);
  std::ranges::sort(order, std::greater(), [&](int64_t i) { return t.get_double(i); });
  std::string out;
  for (size_t i = 0; i < std::min<size_t>(order.size(), 3); ++i)
    append(out, cat(i ? ", " : "", class_name(classes, order[i]), " ",
                    std::lround(100 * t.get_double(order[i])), " %"));
  return out;
}

// Without its end, which tells where the sample came from.
std::string figure(Sample& s, const std::vector<std::string>& classes) {
  std::string caption = cat("#", s.index), body;
  if (Tensor* label = s.find("label"); label && label->dtype() != DType::string)
    append(caption, cat(" · ", escaped(label_text(*label, classes))));
  if (s.image) {
    const Tensor pixels = tinted(s, s.image->pixels());
    const int h = static_cast<int>(pixels.dims()[0]), w = static_cast<int>(pixels.dims()[1]);
    body = picture(pixels, overlay(s, w, h, classes));
    append(caption, cat(" · ", w, "×", h));
  } else {
    const Tensor* sound = s.find("audio");
    if (sound && sound->dtype() == DType::f32 && sound->rank() == 2 && sound->count() > 0)
      body = spectrum(*sound);
    else if (sound && sound->dtype() == DType::f32 && sound->rank() == 1)
      body = waveform(*sound);
    for (const auto& [name, t] : s.fields)
      append(body, cat("<div class=\"f\">", escaped(name), " ", value_text(t), "</div>"));
  }
  return cat("<figure>", body, "<figcaption>", caption);
}

constexpr const char* kStyle =
    ":root{color-scheme:light dark;--page:#f6f6f4;--card:#fff;--ink:#222;--soft:#666;--line:#ddd}"
    "@media(prefers-color-scheme:dark){:root{--page:#17181a;--card:#222427;--ink:#e8e8e6;--soft:#9a9a9a;--"
    "line:#3a3c40}}"
    "body{font:14px/1.4 "
    "system-ui,sans-serif;margin:24px;background:var(--page);color:var(--ink)}h1{font-size:20px;margin:0}"
    "p{color:var(--soft);margin:4px 0 20px;overflow-wrap:anywhere}"
    "main{display:grid;grid-template-columns:repeat(auto-fill,minmax(200px,1fr));gap:16px;align-items:start}"
    "figure{margin:0;background:var(--card);border:1px solid var(--line);border-radius:6px;overflow:hidden}"
    ".p{position:relative}.p img,.p svg{position:absolute;width:100%;height:100%}"
    ".w{display:block;width:100%;height:80px}.w path{stroke:#0082c8;stroke-width:1}"
    "rect{fill:none;stroke-width:2;vector-effect:non-scaling-stroke}circle{stroke:#fff;stroke-width:1;vector-"
    "effect:non-scaling-stroke}"
    "text{fill:#fff;font-weight:bold;font-family:sans-serif;paint-order:stroke;stroke:#000}figcaption{"
    "padding:8px}"
    "small{display:block;color:var(--soft)}small,.f,.e{overflow-wrap:anywhere}.f,.e{padding:8px 8px "
    "0}.e{color:#d0021b}";

// How many characters of the origins are a folder that all of them share; empty ones do not count.
size_t shared_folder(const std::vector<std::string>& origins) {
  std::string prefix;
  size_t seen = 0;
  for (const std::string& o : origins) {
    if (o.empty()) continue;
    if (seen++ == 0) prefix = o;
    prefix.resize(static_cast<size_t>(std::ranges::mismatch(prefix, o).in1 - prefix.begin()));
  }
  const size_t slash = prefix.rfind('/');
  return seen < 2 || slash == std::string::npos ? 0 : slash + 1;
}

}  // namespace

std::string contact_sheet(const Pipeline& p, int64_t count, int64_t epoch) {
  const auto classes = p.source().classes();
  const OrderOptions& o = p.order().options();
  std::vector<std::string> shown, origins;
  for (int64_t step = 0; step < p.steps() && std::ssize(shown) < count; ++step)
    for (int64_t i = 0; i < p.order().count(epoch, step) && std::ssize(shown) < count; ++i) {
      const int64_t index = p.order().at(epoch, step, i).index;
      try {
        Sample s = p.make_sample(index, epoch);
        shown.push_back(figure(s, classes));
        origins.push_back(s.origin.str());
      } catch (const Error& e) {
        shown.push_back(cat("<figure><div class=\"e\">", escaped(e.what()), "</div><figcaption>#", index));
        origins.emplace_back();
      }
    }
  const size_t shared = shared_folder(origins);
  std::string figures, folder;
  for (size_t i = 0; i < shown.size(); ++i) {
    if (!origins[i].empty()) folder = origins[i].substr(0, shared);
    append(figures, cat(shown[i], "<small>", escaped(origins[i].empty() ? "" : origins[i].substr(shared)),
                        "</small></figcaption></figure>\n"));
  }
  std::string stages;
  for (const StageSpec& s : p.spec().stages) append(stages, cat(stages.empty() ? "" : " → ", s.op));
  return cat(
      "<!doctype html><html lang=\"en\"><meta charset=\"utf-8\"><meta name=\"viewport\" "
      "content=\"width=device-width\"><title>",
      escaped(p.spec().name), "</title><style>", kStyle, "</style><h1>", escaped(p.spec().name), "</h1><p>",
      shown.size(), " of ", o.samples, " samples, epoch ", epoch, ", seed ", p.spec().seed, " · ",
      escaped(p.spec().source.kind), folder.empty() ? "" : " in ", escaped(folder),
      stages.empty() ? "" : " → ", escaped(stages), "</p><main>\n", figures, "</main></html>\n");
}

}  // namespace pelton::data
