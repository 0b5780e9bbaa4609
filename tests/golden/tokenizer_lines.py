"""The lines that every tokenizer golden encodes: seeded, so the same on each run.

Sources: Jane Austen, our own phrases.txt (sentences in 60-odd languages) and generators for what
real text seldom holds. A line is bytes; some are not UTF-8. Lines may hold any byte, newlines too.
"""

import random
import unicodedata
from pathlib import Path

PHRASES = Path(__file__).resolve().parent / "tokenizer" / "phrases.txt"

SPACES = [" ", " ", " ", "  ", "   ", "\t", "\t\t", "\n", "\n\n", "\r\n", "\r", "\v", "\f",
          "\u00a0", "\u3000", "\u2003", "\u2009", "\u200a", "\u202f", "\u205f", "\u1680", "\u0085",
          "\u2028", "\u2029", "\u200b", "\u200c", "\u200d", "\u2060", "\ufeff", "\u180e", "\x1c",
          "\x1f", "\x00", " \t", "\t ", " \n ", "    ", "        ", "\u00a0 ", " \u3000"]
SPECIAL_TOKENS = ["<|endoftext|>", "<|begin_of_text|>", "<|end_of_text|>", "<|eot_id|>",
                  "<|start_header_id|>", "<|end_header_id|>", "<|im_start|>", "<|im_end|>",
                  "<unk>", "<s>", "</s>", "<0x41>", "<0xFF>", "<|fim_prefix|>"]
NEAR_SPECIAL = ["<|im_start", "|im_end|>", "< s>", "<S>", "<|eot_id", "</ s>", "<|", "|>", "<s",
                "<<s>>", "</s></s>", "<|IM_START|>", "<|endoftext", "<0x4"]
SCRIPT_BLOCKS = [
    (0x00A1, 0x024F), (0x0250, 0x02FF), (0x0300, 0x036F), (0x0370, 0x03FF), (0x0400, 0x052F),
    (0x0531, 0x058F), (0x0591, 0x05F4), (0x0600, 0x06FF), (0x0700, 0x074F), (0x0780, 0x07BF),
    (0x0900, 0x097F), (0x0980, 0x09FF), (0x0A00, 0x0A7F), (0x0A80, 0x0AFF), (0x0B00, 0x0B7F),
    (0x0B80, 0x0BFF), (0x0C00, 0x0C7F), (0x0C80, 0x0CFF), (0x0D00, 0x0D7F), (0x0D80, 0x0DFF),
    (0x0E01, 0x0E5B), (0x0E80, 0x0EFF), (0x0F00, 0x0FDA), (0x1000, 0x109F), (0x10A0, 0x10FF),
    (0x1100, 0x11FF), (0x1200, 0x139F), (0x13A0, 0x13FF), (0x1400, 0x167F), (0x16A0, 0x16FF),
    (0x1780, 0x17FF), (0x1800, 0x18AF), (0x1B00, 0x1B7F), (0x1E00, 0x1FFF), (0x2000, 0x206F),
    (0x2070, 0x209F), (0x20A0, 0x20CF), (0x2100, 0x218F), (0x2190, 0x23FF), (0x2460, 0x24FF),
    (0x2500, 0x27BF), (0x2C00, 0x2DFF), (0x2E80, 0x2FDF), (0x3000, 0x30FF), (0x3105, 0x31FF),
    (0x3200, 0x33FF), (0x3400, 0x4DBF), (0x4E00, 0x9FFF), (0xA000, 0xA4CF), (0xA500, 0xA6FF),
    (0xAC00, 0xD7A3), (0xE000, 0xF8FF), (0xF900, 0xFAFF), (0xFB00, 0xFDFF), (0xFE00, 0xFE6F),
    (0xFF00, 0xFFEF), (0x10000, 0x100FF), (0x10330, 0x1034F), (0x12000, 0x1236E),
    (0x13000, 0x1342E), (0x1D100, 0x1D1FF), (0x1D400, 0x1D7FF), (0x1E900, 0x1E95F),
    (0x1F100, 0x1F2FF), (0x20000, 0x2A6DF), (0x2F800, 0x2FA1F), (0xE0000, 0xE01EF)]
DIGITS = ["0123456789", "٠١٢٣٤٥٦٧٨٩", "०१२३४५६७८९", "๐๑๒๓๔๕๖๗๘๙", "０１２３４５６７８９", "⁰¹²³⁴⁵⁶⁷⁸⁹",
          "①②③④⑤⑥⑦⑧⑨⑩", "ⅠⅡⅢⅣⅤⅥⅦⅧⅨⅩ", "½⅓¼¾⅔⅛⅜⅝⅞↉", "一二三四五六七八九〇", "𝟎𝟏𝟐𝟑𝟒𝟓𝟔𝟕𝟖𝟗"]


def make_lines(austen: list[str], seed: int = 1) -> dict[str, list[bytes]]:
    """Group -> lines. `austen` is prose to cut from."""
    rng = random.Random(seed)
    phrases = read_phrases()
    prose = [line for line in phrases.values() for line in line]
    text = {
        "edge": edge_lines(austen),
        "austen": austen_lines(rng, austen, 4500),
        "phrases": prose,
        "multilingual": [mixed_words(rng, phrases) for _ in range(4500)],
        "scripts": [random_script(rng) for _ in range(1500)],
        "canonical": canonical_characters(),
        "combining": [combining(rng, prose) for _ in range(1500)],
        "emoji": [emoji_line(rng) for _ in range(1200)],
        "digits": [digits_line(rng) for _ in range(1500)],
        "code": [code_line(rng) for _ in range(1500)],
        "whitespace": [whitespace_line(rng, prose) for _ in range(2000)],
        "contractions": [contraction_line(rng) for _ in range(800)],
        "special": [special_line(rng, prose) for _ in range(1200)],
    }
    lines = {group: [line.encode() for line in group_lines] for group, group_lines in text.items()}
    lines["invalid"] = [invalid_line(rng, prose) for _ in range(1200)]
    return lines


def read_phrases() -> dict[str, list[str]]:
    phrases = {}
    for line in PHRASES.read_text(encoding="utf-8").splitlines():
        language, phrase = line.split("\t")
        phrases.setdefault(language, []).append(phrase)
    return phrases


def edge_lines(austen: list[str]) -> list[str]:
    return ["", " ", "  ", "   ", "\n", "\r\n", "\t", "\u00a0", "\u3000", "\x00", "\x7f", "a", "é",
            "e\u0301", "\u0301", "▁", "▁▁ ▁", " ▁a", "\ufeffBOM first", "\ufffd", "\U0010ffff",
            "😀", " 😀", "  hello", "hello  ", "hello \n", " a b  c   d    e     f", "a" * 300,
            "ab" * 200, " " * 300, "\n" * 100, "0" * 100, "!" * 100, "é" * 100, "漢" * 100,
            "\u0301" * 40, "한" * 100, "\n\n".join(austen)[:20000],
            "".join(" ".join(austen).split())[:3000]]


def austen_lines(rng: random.Random, austen: list[str], count: int) -> list[str]:
    words = " ".join(austen).split(" ")
    lines = []
    for _ in range(count):
        at, n = rng.randrange(len(words) - 20), rng.randint(2, 16)
        lines.append(" " * (rng.random() < 0.3) + " ".join(words[at : at + n]))
    return lines


def mixed_words(rng: random.Random, phrases: dict[str, list[str]]) -> str:
    """Pieces of one language, sometimes of two, so that scripts meet inside a line."""
    languages = rng.sample(sorted(phrases), 2 if rng.random() < 0.3 else 1)
    pieces = []
    for _ in range(rng.randint(2, 8)):
        phrase = rng.choice(phrases[rng.choice(languages)])
        if len(words := phrase.split(" ")) > 3:
            pieces.append(rng.choice(words))
        else:
            at = rng.randrange(len(phrase))
            pieces.append(phrase[at : at + rng.randint(1, 8)])
        if rng.random() < 0.1:
            pieces[-1] = rng.choice([str.upper, str.lower, str.title, str.swapcase])(pieces[-1])
    glue = rng.choice([" ", " ", " ", "", ", ", "-"])
    return glue.join(pieces)


def random_script(rng: random.Random) -> str:
    first, last = rng.choice(SCRIPT_BLOCKS)
    letters = []
    for _ in range(rng.randint(1, 12)):
        c = chr(rng.randint(first, last))
        letters.append(c if unicodedata.category(c) != "Cn" else " ")
    return "".join(letters)


def canonical_characters() -> list[str]:
    """Every character that has a canonical decomposition (Hangul: some), composed and apart."""
    found = [chr(c) for c in range(0x110000)
             if not 0xAC00 <= c <= 0xD7A3 and not 0xD800 <= c <= 0xDFFF
             and unicodedata.normalize("NFD", chr(c)) != chr(c)]
    found += [chr(c) for c in range(0xAC00, 0xD7A4, 97)]
    lines = []
    for at in range(0, len(found), 16):
        part = "".join(found[at : at + 16])
        lines += [part, unicodedata.normalize("NFD", part)]
    return lines


def combining(rng: random.Random, prose: list[str]) -> str:
    kind = rng.random()
    phrase = rng.choice(prose)
    at = rng.randrange(len(phrase))
    piece = phrase[at : at + rng.randint(4, 20)]
    if kind < 0.4:
        return unicodedata.normalize(rng.choice(["NFD", "NFKD"]), piece)
    marks = [chr(rng.choice([rng.randint(0x300, 0x36F), rng.randint(0x591, 0x5BD),
                             rng.randint(0x64B, 0x655), 0x3099, 0x93C, 0x327, 0x328, 0x345]))
             for _ in range(rng.randint(1, 6))]
    if kind < 0.8:  # marks in any order on a base: the canonical order must be restored
        base = rng.choice(["a", "e", "E", "o", "u", "s", "c", "か", "क", "א", "α", "ω", "ا",
                           piece[0]])
        return piece[1:4] + base + "".join(marks) + piece[4:8]
    jamo = [chr(rng.choice([rng.randint(0x1100, 0x1112), rng.randint(0x1161, 0x1175),
                            rng.randint(0x11A7, 0x11C2), 0xAC00 + 28 * rng.randint(0, 398)]))
            for _ in range(rng.randint(2, 8))]
    return "".join(jamo)


def emoji_line(rng: random.Random) -> str:
    people = ["👩", "👨", "🧑", "👧", "👦", "🧒"]
    jobs = ["💻", "🚀", "⚕️", "🌾", "🍳", "🎓", "✈️", "🔬", "🦰"]
    skin = ["", *"🏻🏼🏽🏾🏿"]

    def one() -> str:
        flag = chr(0x1F1E6 + rng.randrange(26)) + chr(0x1F1E6 + rng.randrange(26))
        return rng.choice([
            rng.choice(people) + rng.choice(skin) + "\u200d" + rng.choice(jobs),
            "\u200d".join(rng.choice(people) for _ in range(rng.randint(2, 4))),
            flag, rng.choice("0123456789#*") + "\ufe0f\u20e3",
            "🏳️\u200d🌈",
            "🏴\U000e0067\U000e0062\U000e0073\U000e0063\U000e0074\U000e007f", "❤️\u200d🔥",
            rng.choice("👍👋🙏✌💪") + rng.choice(skin),
            rng.choice("☀☎✂❤♻") + rng.choice(["", "\ufe0f", "\ufe0e"]),
            chr(rng.randint(0x1F300, 0x1F64F)), chr(rng.randint(0x1F680, 0x1F6D7)),
            chr(rng.randint(0x1F90C, 0x1F9FF))])

    words = ["ok", " so", " yes!", " ", "", "", "lol", " x2", "好"]
    return "".join(one() + rng.choice(words) for _ in range(rng.randint(1, 6)))


def digits_line(rng: random.Random) -> str:
    def number() -> str:
        digits = rng.choice(DIGITS) if rng.random() < 0.3 else DIGITS[0]
        return "".join(rng.choice(digits) for _ in range(rng.randint(1, 9)))

    forms = [lambda: number(), lambda: f"{number()}.{number()}", lambda: f"{number()},{number()}",
             lambda: f"-{number()}%", lambda: f"${number()}", lambda: f"{number()}e-{number()}",
             lambda: (f"2{number()[:3]}-0{number()[:1]}-1{number()[:1]}"
                      f"T{number()[:2]}:{number()[:2]}Z"),
             lambda: f"0x{rng.getrandbits(32):08X}", lambda: f"v{number()}",
             lambda: number() + "kg",
             lambda: f"+{number()[:2]} ({number()[:3]}) {number()}",
             lambda: f"№{number()}/{number()}",
             lambda: ".".join(str(rng.randrange(256)) for _ in range(4))]
    glue = rng.choice([" ", " ", "", "  ", ";"])
    return glue.join(rng.choice(forms)() for _ in range(rng.randint(1, 5)))


def code_line(rng: random.Random) -> str:
    def name() -> str:
        parts = [rng.choice(["block", "kv", "token", "Cache", "HTTP", "x", "i", "num", "seq", "tmp",
                             "loadConfig", "größe", "size", "URL", "λ"])
                 for _ in range(rng.randint(1, 3))]
        return rng.choice(["_", "", "_", "."]).join(parts)

    indent = rng.choice(["", "", "    ", "        ", "\t", "\t\t", "  "])
    forms = [
        lambda: f"for (int {name()} = 0; {name()} < {rng.randrange(999)}; ++{name()}) {{",
        lambda: f"def {name()}(self, {name()}: list[int] = []) -> None:",
        lambda: (f"if {name()} != {name()} and not {name()}[{rng.randrange(99)}]:\n"
                 f"{indent}    return"),
        lambda: f"std::vector<{name()}> {name()}{{1, 2, 3}};  // TODO({name()})",
        lambda: f"#include <{name()}.h>\r\n#define {name().upper()} 0x{rng.getrandbits(16):x}",
        lambda: f"SELECT {name()}, COUNT(*) FROM {name()} WHERE {name()} >= '{name()}';",
        lambda: (f"<div class=\"{name()}\"><a href='https://{name()}.org/?q={name()}&n=1'>"
                 "…</a></div>"),
        lambda: f'{{"{name()}": [{rng.random():.4f}, null, true], "{name()}": "\\u00e9\\n"}}',
        lambda: f"let {name()} = |x| x.{name()}()?.unwrap_or(&'static str);",
        lambda: f"$ grep -rn \"{name()}\" ./{name()}/*.cc | awk '{{print $2}}' >> /tmp/{name()}",
        lambda: f"\\frac{{{name()}}}{{\\sqrt{{2\\pi}}}} \\cdot e^{{-{name()}^2/2}}",
        lambda: f"{name()} = ({name()} << 3) | ({name()} & ~0xff) ** 2 // {name()}",
        lambda: f"/* {name()} ---------- */ }} else {{ {name()}->{name()} = nullptr; }}"]
    return indent + rng.choice(forms)()


def whitespace_line(rng: random.Random, prose: list[str]) -> str:
    def word() -> str:
        if rng.random() < 0.25:
            return rng.choice(["!", "...", "(", "42", "'s", "a", "--", "\"", "。"])
        return rng.choice(rng.choice(prose).split(" "))[:8]

    line = "".join(word() + "".join(rng.choice(SPACES) for _ in range(rng.randint(1, 3)))
                   for _ in range(rng.randint(1, 5)))
    return rng.choice(["", "", rng.choice(SPACES)]) + line.rstrip(rng.choice(["", " "]))


def contraction_line(rng: random.Random) -> str:
    endings = ["s", "t", "re", "ve", "m", "ll", "d", "S", "T", "Re", "VE", "M", "lL", "D", "ſ", "x",
               "em", "", "r", "v", "l", "SS", "tis"]
    quotes = ["'", "'", "'", "’", "''", " '", "‘", "`", "' "]
    stems = ["I", "don", "WE", "you", "he", "o", "rock", "l", "é", "3", "L", "who", "_", "день",
             "it"]
    return " ".join(rng.choice(stems) + rng.choice(quotes) + rng.choice(endings)
                    for _ in range(rng.randint(1, 5)))


def special_line(rng: random.Random, prose: list[str]) -> str:
    parts = []
    for _ in range(rng.randint(1, 4)):
        phrase = rng.choice(prose)
        at = rng.randrange(len(phrase))
        parts.append(rng.choice(["", "", " ", "\n", phrase[at : at + rng.randint(1, 10)]]))
        parts.append(rng.choice(NEAR_SPECIAL if rng.random() < 0.2 else SPECIAL_TOKENS))
    parts.append(rng.choice(["", " ", "\n", "ok", " é", "e\u0301"]))
    return "".join(parts)


def invalid_line(rng: random.Random, prose: list[str]) -> bytes:
    """Text with bytes that are not UTF-8: cut, overlong, surrogate, out of range, stray."""
    phrase = rng.choice(prose)
    at = rng.randrange(len(phrase))
    data = bytearray(phrase[at : at + rng.randint(2, 14)].encode())
    for _ in range(rng.randint(1, 3)):
        where = rng.randrange(len(data) + 1)
        bad = rng.choice([
            lambda: rng.choice("é漢😀".encode().split(b" "))[: rng.randint(1, 3)],
            lambda: bytes([rng.randint(0x80, 0xBF)]), lambda: bytes([rng.randint(0xC0, 0xFF)]),
            lambda: b"\xc0\xaf", lambda: b"\xe0\x80\xaf", lambda: b"\xf0\x80\x80\xaf",
            lambda: b"\xed\xa0\x80", lambda: b"\xed\xb0\x80", lambda: b"\xf4\x90\x80\x80",
            lambda: b"\xf8\x88\x80\x80\x80", lambda: b"\xfe\xff", lambda: b"\xe2\x82",
            lambda: b"\xf0\x9f\x98", lambda: b"\xf1\x80\x80\xe1\x80\xc2",
            lambda: bytes(rng.randrange(256) for _ in range(rng.randint(1, 5)))])()
        data[where:where] = bad
    return bytes(data)
