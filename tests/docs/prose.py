#!/usr/bin/env python3
"""The prose of the documents and of the public headers, measured.

prose.py FILE...     each fault of these files, as FILE:LINE
prose.py             the test: each fault that allowed.txt does not allow
prose.py --counts    how many faults each file has

A fault is a sentence of more than 32 words, a phrase of phrases.txt, or a
sentence with three passive verbs or more. A sentence ends at a full stop, a
colon, an exclamation mark or a question mark that a blank follows. A heading,
a paragraph, an item of a list, a cell of a table and a comment of a header
are read one by one; blocks of code are not read.
"""
import argparse
import collections
import pathlib
import re
import sys

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
FILES = ("README.md", "CHANGELOG.md", "CONTRIBUTING.md", "docs/**/*.md",
         "docs/**/*.rst", "bindings/*/*.md", "bindings/python/docs/**/*.md",
         "include/tensormsg/*.h")
MOST_WORDS = 32
MOST_PASSIVE = 2
MOST_ALLOWED = 20
OPENING = 8  # words by which the lists name a sentence

IRREGULAR = """begun bound bought broken brought built caught chosen cut done
    drawn driven fed forgotten found given gone got gotten held hidden hit hung
    kept known laid led left lent let lost made meant met paid put read run
    said seen sent set shown shut split spoken spent stopped stored swept taken
    taught thought thrown told torn understood won written""".split()
PASSIVE = re.compile(
    r"\b(?:is|are|was|were|be|been|being|gets?|got)\s+"
    r"(?:(?:not|never|also|then|only|always|still|once|\w+ly)\s+)*"
    r"(?:\w{2,}ed|" + "|".join(IRREGULAR) + r")\b", re.I)
# An item of a list of errors in a header: "  NAME, OTHER - when".
STATUS = re.compile(r"^ {1,3}([A-Z_]{2,}(?:, [A-Z_]{2,})*(?: - .*)?)$")
LIST_ITEM = re.compile(r"\s*(?:[-*+]|\d+[.)])\s+")
Fault = collections.namedtuple("Fault", "path line kind what sentence")


def cells(row):
    """The cells of a row of a table; a | in code parts none."""
    row = re.sub(r"`[^`]*`", lambda m: m[0].replace("|", "\0"), row.strip())
    parts = re.split(r"(?<!\\)\|", row.strip("|"))
    return [part.replace("\0", "|").strip() for part in parts]


def blocks_of_markdown(text):
    """Yields blocks: lists of (line number, text)."""
    block, fence = [], None
    for number, line in enumerate(text.split("\n"), 1):
        line = re.sub(r"^(?:\s*>)+ ?", "", line)
        mark = re.match(r"\s*(```+|~~~+)", line)
        if fence:
            fence = None if mark and mark[1].startswith(fence) else fence
            continue
        row = re.match(r"\s*\|", line)
        item = LIST_ITEM.match(line)
        alone = mark or row or re.match(r"\s*(#|<!--|:?-{3,})", line)
        if (alone or item or not line.strip()) and block:
            yield block
            block = []
        if mark:
            fence = mark[1]
        elif row:
            yield from ([(number, cell)] for cell in cells(line)
                        if not re.fullmatch(r"[-: ]*", cell))
        elif alone:
            yield [(number, line.strip("# "))]
        elif item:
            block = [(number, line[item.end():])]
        elif line.strip():
            block.append((number, line))
    if block:
        yield block


def blocks_of_rst(text):
    """As blocks_of_markdown(), without directives and what they hold."""
    kept, inside = [], False
    for line in text.split("\n"):
        if line.startswith(".. "):
            inside = True
        elif line.strip() and not line.startswith(" "):
            inside = False
        underline = re.fullmatch(r"([=\-~^\"])\1{2,}", line)
        kept.append("" if inside or underline else line)
    yield from blocks_of_markdown("\n".join(kept))


def blocks_of_header(text):
    """The comments of a C header: each paragraph and item is a block."""
    for comment in re.finditer(r"/\*(.*?)\*/", text, re.S):
        first = text.count("\n", 0, comment.start())
        lines = [re.sub(r"^\s*\*(?: |$)", "", line)
                 for line in comment[1].split("\n")]
        # What is set in by four blanks and more is a drawing, or code.
        lines = ["" if re.match(r"\s{4,}", line) else line for line in lines]
        lines = [STATUS.sub(r"- \1", line) for line in lines]
        for block in blocks_of_markdown("\n".join(lines)):
            yield [(number + first, line) for number, line in block]


def sentences(block):
    """Yields (line number, sentence)."""
    words = [(number, word) for number, line in block for word in line.split()]
    begin = 0
    for at, (_, word) in enumerate(words):
        if word[-1] in ".:!?" or at == len(words) - 1:
            yield words[begin][0], " ".join(w for _, w in words[begin:at + 1])
            begin = at + 1


def phrases():
    """[(pattern, what to write)] of phrases.txt."""
    found = []
    for line in (HERE / "phrases.txt").read_text("utf-8").split("\n"):
        if line and not line.startswith("#"):
            pattern, advice = re.split(r"\s+=>\s+", line)
            found.append((re.compile(pattern, re.I), advice))
    return found


def phrases_in(plain, banned):
    """The phrases of a sentence: [(the words, what to write)]."""
    matches = ((pattern.search(plain), advice) for pattern, advice in banned)
    return [(match[0], advice) for match, advice in matches if match]


def without_code(sentence):
    return re.sub(r"`[^`]*`", "`code`", sentence)


def faults(path, text, banned):
    """Yields the faults of a file, in order."""
    blocks = {".h": blocks_of_header, ".rst": blocks_of_rst}.get(
        path.suffix, blocks_of_markdown)
    for block in blocks(text):
        for line, sentence in sentences(block):
            count = len(sentence.split())
            if count > MOST_WORDS:
                yield Fault(path, line, "long", f"{count} words", sentence)
            plain = without_code(sentence)
            for words, advice in phrases_in(plain, banned):
                yield Fault(path, line, "phrase", f"'{words}': {advice}",
                            sentence)
            verbs = [" ".join(verb.split()) for verb in PASSIVE.findall(plain)]
            if len(verbs) > MOST_PASSIVE:
                yield Fault(path, line, "passive", ", ".join(verbs), sentence)


def opening(sentence):
    return " ".join(sentence.split()[:OPENING])


def name(fault):
    """How the lists name a fault: where it stands may change."""
    return f"{fault.kind}: {opening(fault.sentence)}"


def lines_of(file):
    lines = (HERE / file).read_text("utf-8").split("\n")
    return [line for line in lines if line and not line.startswith("#")]


def allowed():
    """The faults that stay, and why: a problem of the list ends this."""
    names = {}
    for line in lines_of("allowed.txt"):
        fault, _, why = line.partition(" => ")
        if not why:
            sys.exit(f"allowed.txt: no reason behind ' => ': {line}")
        names[fault] = why
    if len(names) > MOST_ALLOWED:
        sys.exit(f"allowed.txt has {len(names)} sentences, "
                 f"{MOST_ALLOWED} at most are let through: mend some")
    return names


def shown(fault):
    path = fault.path
    if path.is_relative_to(ROOT):
        path = path.relative_to(ROOT)
    return (f"{path}:{fault.line}: {fault.kind}: {fault.what}: "
            f"{opening(fault.sentence)} ...")


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("files", nargs="*", type=pathlib.Path)
    parser.add_argument("--counts", action="store_true")
    args = parser.parse_args()
    files = [file.resolve() for file in args.files] or sorted(
        {file for pattern in FILES for file in ROOT.glob(pattern)})
    banned = phrases()
    found = [fault for file in files
             for fault in faults(file, file.read_text("utf-8"), banned)]
    names = {name(fault) for fault in found}
    if args.counts:
        for (path, kind), count in sorted(collections.Counter(
                (fault.path, fault.kind) for fault in found).items()):
            print(f"{count:5} {kind:8} {path.relative_to(ROOT)}")
        return 0
    stays = allowed()
    if not args.files:
        for gone in [line for line in stays if line not in names]:
            print(f"allowed.txt: no such sentence any more: {gone}")
            stays["failed"] = ""
    found = [fault for fault in found if name(fault) not in stays]
    for fault in found:
        print(shown(fault))
    return 1 if found or "failed" in stays else 0


if __name__ == "__main__":
    sys.exit(main())
