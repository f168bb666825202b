// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

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

std::string boxes_svg(Sample& s, int w, int h, const std::vector<std::string>& classes) {
  const Tensor *boxes = s.find("boxes"), *labels = s.find("box_labels");
  if (!boxes || boxes->count() == 0) return "";
  std::string out = cat("<svg viewBox=\"0 0 ", w, " ", h, "\">");
  for (int64_t i = 0; i < boxes->dims()[0]; ++i) {
    const float* b = boxes->as<float>() + 4 * i;
    append(out, cat("<rect x=\"", b[0], "\" y=\"", b[1], "\" width=\"", b[2] - b[0], "\" height=\"",
                    b[3] - b[1], "\"/>"));
    if (labels)
      append(out, cat("<text x=\"", b[0] + 2, "\" y=\"", std::max(b[1] + 12, 12.f), "\">",
                      escaped(class_name(classes, labels->get_int(i))), "</text>"));
  }
  return out + "</svg>";
}

std::string figure(Sample& s, const std::vector<std::string>& classes) {
  std::string caption = cat("#", s.index), body;
  if (Tensor* label = s.find("label"); label && label->count() == 1)
    append(caption, cat(" · ", escaped(class_name(classes, label->get_int(0)))));
  if (s.image) {
    const Tensor& pixels = s.image->pixels();
    const int h = static_cast<int>(pixels.dims()[0]), w = static_cast<int>(pixels.dims()[1]);
    body = cat("<div class=\"p\" style=\"aspect-ratio:", w, "/", h,
               "\"><img alt=\"\" src=\"data:image/jpeg;base64,", base64(jpeg_encode(pixels, 90)), "\">",
               boxes_svg(s, w, h, classes), "</div>");
    append(caption, cat(" · ", w, "×", h));
  } else {
    for (const auto& [name, t] : s.fields)
      append(body, cat("<div class=\"f\">", escaped(name), " ", t.str(), "</div>"));
  }
  return cat("<figure>", body, "<figcaption>", caption, "<small>", escaped(s.origin.str()),
             "</small></figcaption></figure>\n");
}

constexpr const char* kStyle =
    "body{font:14px/1.4 "
    "system-ui,sans-serif;margin:24px;background:#f6f6f4;color:#222}h1{font-size:20px;margin:0}p{color:#555;"
    "margin:4px 0 20px}"
    "main{display:grid;grid-template-columns:repeat(auto-fill,minmax(200px,1fr));gap:16px}figure{margin:0;"
    "background:#fff;border:1px solid #ddd;border-radius:6px;overflow:hidden}"
    ".p{position:relative}.p img,.p "
    "svg{position:absolute;width:100%;height:100%}rect{fill:none;stroke:#e6194b;stroke-width:2;vector-effect:"
    "non-scaling-stroke}"
    "text{fill:#fff;font:bold 12px "
    "sans-serif;paint-order:stroke;stroke:#000;stroke-width:3px}figcaption{padding:8px}small{display:block;"
    "color:#888;overflow-wrap:anywhere}"
    ".f,.e{padding:8px 8px 0}.e{color:#b00020}";

}  // namespace

std::string contact_sheet(const Pipeline& p, int64_t count, int64_t epoch) {
  const auto classes = p.source().classes();
  const OrderOptions& o = p.order().options();
  std::string figures;
  int64_t shown = 0;
  for (int64_t step = 0; step < p.steps() && shown < count; ++step)
    for (int64_t i = 0; i < p.order().count(epoch, step) && shown < count; ++i, ++shown) {
      const int64_t index = p.order().at(epoch, step, i).index;
      try {
        Sample s = p.make_sample(index, epoch);
        figures += figure(s, classes);
      } catch (const Error& e) {
        append(figures, cat("<figure><div class=\"e\">", escaped(e.what()), "</div><figcaption>#", index,
                            "</figcaption></figure>\n"));
      }
    }
  std::string stages;
  for (const StageSpec& s : p.spec().stages) append(stages, cat(stages.empty() ? "" : " → ", s.op));
  return cat(
      "<!doctype html><html lang=\"en\"><meta charset=\"utf-8\"><meta name=\"viewport\" "
      "content=\"width=device-width\"><title>",
      escaped(p.spec().name), "</title><style>", kStyle, "</style><h1>", escaped(p.spec().name), "</h1><p>",
      shown, " of ", o.samples, " samples, epoch ", epoch, ", seed ", p.spec().seed, " · ",
      escaped(p.spec().source.kind), stages.empty() ? "" : " → ", escaped(stages), "</p><main>\n", figures,
      "</main></html>\n");
}

}  // namespace pelton::data
