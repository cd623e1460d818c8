"""Writes smollm2-tokens.json: texts and their tokens, made without hexloom and without the `tokenizers` crate.

usage: python3 tokenize_oracle.py MODEL.gguf > smollm2-tokens.json    (needs the PyPI package `regex`)

It reads vocabulary and merges from the model file and merges in the plainest way: the lowest rank first, one at a time.
"""

import json
import struct
import sys

import regex

TEXTS = [
    "The capital of France is Paris.",
    "it's we'll they'RE I'd",
    "x  y   z    w",
    "        eight",
    "trailing   ",
    " ",
    "\t\tif x:\n\t\t\treturn\r\n\r\n  \n",
    "\n\n\n\n",
    "2024 was 1234567890, pi is 3.14159",
    " 7 77 ١٢٣ ½ Ⅷ ²",
    "人工智能改变世界。你好,世界!",
    "日本語のテキスト、カタカナ。",
    "한국어 문장",
    "Привет, мир! Ελληνικά",
    "שלום עולם مرحبا بالعالم",
    "नमस्ते दुनिया",
    "🙂👍🏽 👨\u200d👩\u200d👧\u200d👦🇫🇷",
    "e\u0301 cafe\u0301 café a\u0308\u0323",
    "naïve—“quotes”…\u00a0nbsp\u3000wide",
    "fn main() { println!(\"{:?}\", a[0..=n]); } // done",
    "<|im_start|>user\nhi<|im_end|>\n<|endoftext|>",
    "a<|im_start|>b <|im_start|> c<|im_start",
    "snake_case CamelCase kebab-case $#@!~`^&*()",
]

CODES = {0: "B", 1: "b", 2: "<H", 3: "<h", 4: "<I", 5: "<i", 6: "<f", 7: "?", 10: "<Q", 11: "<q", 12: "<d"}


def metadata(file):
    at = 16

    def number(code):
        nonlocal at
        (value,) = struct.unpack_from(code, file, at)
        at += struct.calcsize(code)
        return value

    def text():
        nonlocal at
        length = number("<Q")
        at += length
        return file[at - length : at].decode()

    def value(code):
        if code == 8:
            return text()
        if code == 9:
            inner, length = number("<I"), number("<Q")
            return [value(inner) for _ in range(length)]
        return number(CODES[code])

    values = {}
    for _ in range(number("<Q")):
        key = text()
        values[key] = value(number("<I"))
    return values


values = metadata(open(sys.argv[1], "rb").read())
tokens = values["tokenizer.ggml.tokens"]
ids = {token: i for i, token in enumerate(tokens)}
ranks = {tuple(merge.split(" ")): i for i, merge in enumerate(values["tokenizer.ggml.merges"])}
control = [t for t, kind in zip(tokens, values["tokenizer.ggml.token_type"]) if kind == 3]

printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
letters = {byte: chr(byte) for byte in printable}
for byte in range(256):
    letters.setdefault(byte, chr(256 + len(letters) - len(printable)))

digits = regex.compile(r"\p{N}|\P{N}+")
words = regex.compile(r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+")
parts = regex.compile("(" + "|".join(map(regex.escape, control)) + ")")


def merge(piece):
    word = [letters[byte] for byte in piece.encode()]
    while True:
        pairs = [(ranks[pair], i) for i, pair in enumerate(zip(word, word[1:])) if pair in ranks]
        if not pairs:
            return [ids[part] for part in word]
        i = min(pairs)[1]
        word[i : i + 2] = [word[i] + word[i + 1]]


def encode(text):
    out = []
    for part in parts.split(text):
        if part in control:
            out.append(ids[part])
        else:
            for run in digits.findall(part):
                for piece in words.findall(run):
                    out += merge(piece)
    return out


lines = [json.dumps({"text": text, "tokens": encode(text)}) for text in TEXTS]
print("[\n" + ",\n".join(lines) + "\n]")
