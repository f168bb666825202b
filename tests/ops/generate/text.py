# SPDX-License-Identifier: Apache-2.0
import numpy as np
from casegen import Cases
from casegen import tensor as literal

c = Cases("text")


def strings(*items, shape=None):
    a = np.array(items, object)
    return a.reshape(shape) if shape is not None else a


c.one("concat", "string_concat", [strings("a", "", "é"), strings("b", "c", "d")], [strings("ab", "c", "éd")])
c.one("concat_broadcast", "string_concat", [strings("a", "b", shape=(2, 1)), strings("1", "2", "3")],
      [strings("a1", "a2", "a3", "b1", "b2", "b3", shape=(2, 3))])
c.refuse("concat_types", "bad_type", ["string_concat", "C1", "i32"],
         "  %r = string_concat(%0, %1) : string[2]\n  return %r", ["string[2]", "i32[2]"])


def split(x, delimiter=None, most=-1):
    pieces = [str(s).split(delimiter, most) for s in x.reshape(-1)]
    width = max((len(p) for p in pieces), default=0)
    y = np.array([p + [""] * (width - len(p)) for p in pieces], object).reshape(*x.shape, width)
    return [y, np.array([len(p) for p in pieces], np.int64).reshape(x.shape)]


def split_case(name, x, delimiter=None, most=-1):
    attrs = [f'delimiter = "{delimiter}"'] * (delimiter is not None) + [f"max_splits = {most}"] * (most >= 0)
    y, n = split(x, delimiter, most)
    dims = ",".join([*map(str, x.shape), "u0"])
    count = ",".join(map(str, x.shape))
    c.graph(name, f"  symbol u0 in [0, 100]\n  %r, %n = string_split(%0) {{{', '.join(attrs)}}} : "
            f"string[{dims}], i64[{count}]\n  return %r, %n", [x], [y, n])


x = strings("a b  c", " lead trail ", "", "one")
split_case("split_space", x)
split_case("split_space_once", x, most=1)
split_case("split_space_never", x, most=0)
split_case("split_comma", strings("a,b,,c", ",", "", "x", shape=(2, 2)), ",")
split_case("split_comma_twice", strings("a,b,,c", ","), ",", 2)
split_case("split_long_delimiter", strings("a--b-c--", "--"), "--")
split_case("split_nothing", strings(shape=(0,)))

N = "  symbol u0 in [1, 100]\n  %r = string_normalizer(%0) {{{}}} : string[{}]\n  return %r"
x = strings("Monday", "tuesday", "Wednesday", "monday")
c.graph("normalizer_plain", N.format("", "u0"), [x], [x])
c.graph("normalizer_lower", N.format('case = "lower"', "u0"), [x], [strings("monday", "tuesday", "wednesday", "monday")])
c.graph("normalizer_upper_matrix", N.format('case = "upper", stop_words = texts["MONDAY"]', "1,u0"), [x.reshape(1, 4)],
        [strings("TUESDAY", "WEDNESDAY", shape=(1, 2))])
c.graph("normalizer_sensitive", N.format('case_sensitive = true, stop_words = texts["monday"]', "u0"), [x], [x[:3]])
c.graph("normalizer_all_gone", N.format('stop_words = texts["monday", "TUESDAY", "wednesday"]', "u0"), [x], [strings("")])
c.graph("normalizer_accents", N.format('case = "upper"', "u0"), [strings("ñandú", "Straße", "привет", "αβγ")],
        [strings("ÑANDÚ", "STRAßE", "ПРИВЕТ", "ΑΒΓ")])
c.refuse("normalizer_shape", "bad_shape", ["string_normalizer", "C2", "[2,2]"], N.format("", "2,u0"), ["string[2,2]"])
c.refuse("normalizer_case", "usage", ["string_normalizer", "C3", "'title'"], N.format('case = "title"', "u0"), ["string[2]"])

REGEX = {
    "literal": ("abc", ["abc", "ab", "abcd", ""]), "dot": ("a.c", ["abc", "a\nc", "aéc", "ac"]),
    "star": ("a*b", ["b", "aaab", "aaa"]), "plus_lazy": ("a+?b", ["ab", "aab", "b"]),
    "option": ("colou?r", ["color", "colour", "colouur"]), "count": ("a{2,3}", ["a", "aa", "aaa", "aaaa"]),
    "count_open": ("a{2,}b{0}", ["a", "aa", "aaaaa", "aab"]), "classes": (r"\w+\s\d{3}", ["ab_1 123", "ab 12", " 123"]),
    "negated": (r"[^a-c]+\D\S", ["xyz!", "abc", "xx1"]), "alternatives": ("cat|dog|bird", ["cat", "dog", "bird", "catdog"]),
    "groups": ("(ab|c)+d", ["abcd", "cabd", "d", "abab"]), "nested": ("((a|b)(c|d)?)*", ["", "acbd", "abab", "acc"]),
    "case": ("(?i)abC", ["ABC", "abc", "abd"]), "case_group": ("a(?i:b)c", ["aBc", "ABc", "abC"]),
    "anchors": ("^ab$", ["ab", "ab\n", "a"]), "escape": (r"\.\*\x41\t", [".*A\t", "..A\t"]),
    "posix": ("[[:alpha:]_-]+", ["a_b-C", "a1"]), "bracket": (r"[]a\]]+", ["]a]", "b"]),
    "empty": ("", ["", "a"]), "unicode": ("é{2}", ["éé", "é"]),
    "mail": (r"(\W|^)[\w.\-]{0,25}@(yahoo|gmail)\.com(\W|$)", ["account@gmail.com", "account@hotmail.com", "not email"]),
    "boundary": (r"\w+\.\bcom\b!*\w*", ["www.com", "www.com!", "www.comx", "www.com!x"]),
    "inside": (r"a\Bb+\b.*\B", ["abb", "abb!", "a bb", "abbc"]), "only_boundary": (r"\b", ["", "a"]),
    "brace": ("a{x}", ["a{x}", "a"]), "backtracking": ("(a*)*b", ["a" * 40, "aaab"]),
}
import re  # noqa: E402

for name, (pattern, texts) in REGEX.items():
    plain = pattern.replace("[[:alpha:]_-]", "[A-Za-z_-]").replace("(?i:b)", "(?i:b)")
    want = [] if name == "backtracking" else [re.fullmatch(plain.replace("$", r"\Z"), t) is not None for t in texts]
    want = want or [False, True]
    quoted = pattern.replace("\\", "\\\\")
    c.one(f"regex_{name}", "regex_full_match", [strings(*texts)], [np.array(want)], f'pattern = "{quoted}"')
for name, (pattern, words) in {
        "open_group": ("(a", ["group without end"]), "open_class": ("[a", ["class without end"]),
        "nothing": ("*a", ["nothing to repeat", "position 0"]), "close": ("a)", ["unmatched"]),
        "range": ("[z-a]", ["out of order"]), "back_reference": (r"(a)\\1", ["unknown escape"]),
        "huge": ("a{2000}", ["0 to 1000"]), "many": ("((a{1000}){1000}){1000}", ["100000 states"])}.items():
    c.refuse(f"regex_{name}", "bad_format", ["regular expression", *words],
             f'  %r = regex_full_match(%0) {{pattern = "{pattern}"}} : bool[1]\n  return %r', ["string[1]"])

POOL = np.array([2, 3, 5, 4, 5, 6, 7, 8, 6, 7], np.int64)
BASE = f"pool = {literal(POOL)}, starts = [0, 4], columns = [0, 1, 2, 3, 4, 5, 6]"
x = np.array([1, 1, 3, 3, 3, 7, 8, 6, 7, 5, 6, 8], np.int32)
# Counted by hand as ONNX describes it: 2, 3, 5, 4 alone, then the pairs 5-6, 7-8, 6-7.
c.one("tfidf_pairs", "tfidf", [x], [np.array([0, 0, 0, 0, 1, 1, 1], np.float32)],
      BASE + ', mode = "tf", min_length = 2, max_length = 2')
c.one("tfidf_pairs_skip", "tfidf", [x.reshape(2, 6)], [np.array([[0, 3, 0, 0, 0, 0, 0], [0, 0, 1, 0, 1, 1, 1]], np.float32)],
      BASE + ', mode = "tf", min_length = 1, max_length = 2, max_skip = 5')
c.one("tfidf_idf", "tfidf", [x.reshape(2, 6)], [np.array([[0, 2, 0, 0, 0, 0, 0], [0, 0, 3, 0, 5, 0, 7]], np.float32)],
      BASE + ', mode = "idf", min_length = 1, max_length = 2, weights = reals[1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0]')
c.one("tfidf_strings", "tfidf", [strings("b", "a", "b", "a", "b")], [np.array([6, 4, 0], np.float32)],
      f'pool = {literal(strings("a", "b", "a", "b"))}, starts = [0, 2], columns = [1, 0, 2], mode = "tfidf", '
      "weights = reals[2.0, 2.0, 9.0], min_length = 1, max_length = 1")
tf = "  %r = tfidf(%0) {{{}}} : f32[7]\n  return %r"
c.refuse("tfidf_type", "bad_type", ["tfidf", "C1", "f32"], tf.format(BASE + ', mode = "tf"'), ["f32[3]"])
c.refuse("tfidf_rank", "bad_shape", ["tfidf", "C2"], tf.format(BASE + ', mode = "tf"'), ["i64[1,2,3]"])
c.refuse("tfidf_mode", "usage", ["tfidf", "C3", "'bm25'"], tf.format(BASE + ', mode = "bm25"'), ["i64[3]"])
c.refuse("tfidf_columns", "usage", ["tfidf", "C4", "2 columns for 7"],
         tf.format(BASE.replace("[0, 1, 2, 3, 4, 5, 6]", "[0, 1]") + ', mode = "tf"'), ["i64[3]"])


def encoder(keys, values, otherwise):
    return f"keys = {literal(keys)}, values = {literal(values)}, otherwise = {literal(otherwise)}"


c.one("label_strings", "label_encoder", [strings("a", "x", "b", shape=(3, 1))], [np.array([[1], [-1], [2]], np.int64)],
      encoder(strings("a", "b"), np.array([1, 2], np.int64), np.int64(-1)))
c.one("label_floats", "label_encoder", [np.array([0.5, -0.0, np.nan, 7], np.float32)], [strings("half", "zero", "none", "?")],
      encoder(np.array([0.5, 0, np.nan], np.float32), strings("half", "zero", "none"), strings("?", shape=())))
c.one("label_ints", "label_encoder", [np.array([3, 4], np.int64)], [np.array([0.25, 9], np.float32)],
      encoder(np.array([3], np.int64), np.array([0.25], np.float32), np.float32(9)))
enc = "  %r = label_encoder(%0) {{{}}} : i64[2]\n  return %r"
c.refuse("label_type", "bad_type", ["label_encoder", "C1", "i32", "i64"],
         enc.format(encoder(np.array([3], np.int64), np.array([1], np.int64), np.int64(0))), ["i32[2]"])
c.refuse("label_count", "bad_shape", ["label_encoder", "C2", "1 keys and 2 values"],
         enc.format(encoder(np.array([3], np.int64), np.array([1, 2], np.int64), np.int64(0))), ["i64[2]"])
c.refuse("concat_shapes", "bad_shape", ["string_concat", "C2", "[2]"],
         "  %r = string_concat(%0, %1) : string[2]\n  return %r", ["string[2]", "string[3]"])
for op, attrs in [("string_split", ""), ("string_normalizer", ""), ("regex_full_match", 'pattern = "a"')]:
    results = "%r, %n" if op == "string_split" else "%r"
    types = "string[2,1], i64[2]" if op == "string_split" else "string[2]"
    c.refuse(f"{op}_type", "bad_type", [op, "C1", "i64"], f"  {results} = {op}(%0) {{{attrs}}} : {types}\n  return %r", ["i64[2]"])
c.one("tfidf_far", "tfidf", [x.reshape(2, 6)], [np.array([[0, 3, 0, 0, 0, 0, 0], [0, 0, 1, 0, 1, 1, 1]], np.float32)],
      BASE + f', mode = "tf", min_length = 1, max_length = {2**62}, max_skip = {2**63 - 1}')
c.write()
