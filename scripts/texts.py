#!/usr/bin/env python3
"""Lists every text that the library, its command and its packages can say.

texts.py [FILE...]     as FILE:LINE: CALL: TEXT, each text in one line

A text is a string of at least two words, as the sources have it: pieces are
joined, and "{}" stands for what is filled in. Docstrings, comments, tests and
code for a compiler are none.
"""
import ast
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
FILES = ("src/**/*.[ch]", "tools/**/*.[ch]", "bindings/python/native/*.[ch]",
         "bindings/python/src/**/*.py", "bindings/python/faces/*.in",
         "bindings/go/**/*.go")
TOKENS = re.compile(
    r"""(?P<comment>/\*.*?\*/|//[^\n]*)|(?P<raw>`[^`]*`)"""
    r"""|"(?P<text>(?:[^"\\\n]|\\.)*)"|(?P<char>'(?:[^'\\\n]|\\.)*')"""
    r"""|(?P<word>\w+)|(?P<other>[^\s\w])""", re.S)
FILLED = re.compile(r"%[-+ #0]*[\d*]*(?:\.[\d*]+)?(?:hh|ll|[hlzjt])?[a-zA-Z]")


def is_text(text):
    """Whether somebody reads it: two words of letters, and no code."""
    return len(re.findall(r"(?<![\w%<&./-])[A-Za-z']{2,}(?![\w(=/.])",
                          text)) >= 2


def texts_of_c(source, go=False):
    """Yields (line, call, text) of C or Go."""
    calls, last, joined, begin = [], "", None, 0

    def close():
        nonlocal joined
        if joined is not None and is_text(joined):
            yield source.count("\n", 0, begin) + 1, call(), joined
        joined = None

    def call():
        return next((name for name in reversed(calls) if name), "")

    for token in TOKENS.finditer(source):
        kind, value = token.lastgroup, token[0]
        if kind == "raw" and not go or kind == "comment":
            continue
        if kind in ("text", "raw"):
            value = token["text"] if kind == "text" else value[1:-1]
            if joined is None:
                joined, begin = "", token.start()
            joined += FILLED.sub("{}", value).replace("\\n", "\n").replace(
                '\\"', '"')
            continue
        if joined is not None and (value.startswith("PRI") or
                                   go and value == "+"):
            joined = re.sub(r"%$", "{}", joined)
            continue
        yield from close()
        if value == "(":
            calls.append(last)
        elif value == ")" and calls:
            calls.pop()
        last = value if kind == "word" else ""


def texts_of_python(source):
    """Yields (line, call, text) of Python, without docstrings."""
    tree = ast.parse(source)
    parents = {child: node for node in ast.walk(tree)
               for child in ast.iter_child_nodes(node)}

    def whole(node):
        """The text of a string, an f-string, a % or a + of them, or None."""
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            return node.value
        if isinstance(node, ast.JoinedStr):
            return "".join("{}" if isinstance(value, ast.FormattedValue)
                           else whole(value) for value in node.values)
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
            left, right = whole(node.left), whole(node.right)
            if left is not None or right is not None:
                return (left or "{}") + (right or "{}")
        return None

    def call(node):
        while node in parents and not isinstance(node, ast.stmt):
            node = parents[node]
            if isinstance(node, ast.Call):
                return ast.unparse(node.func)
        return "raise" if isinstance(node, ast.Raise) else ""

    for node in ast.walk(tree):
        parent = parents.get(node)
        if isinstance(parent, ast.Expr) or \
                whole(parent) is not None and parent is not None or \
                isinstance(parent, (ast.FormattedValue, ast.Index)):
            continue
        text = whole(node)
        if text is not None and is_text(text):
            yield node.lineno, call(node), FILLED.sub("{}", text)


def texts_of_template(source):
    """As texts_of_python(), of a template of the two faces."""
    found = set()
    for face in ("asyncio", "blocking"):
        run, lines = "both", []
        for line in source.split("\n"):
            begun = re.fullmatch(r" *# (asyncio|blocking|both):", line)
            marked = re.fullmatch(r"(.*?) *# (asyncio|blocking)", line)
            run = begun[1] if begun else run
            kept = run in ("both", face) and not begun and \
                (not marked or marked[2] == face)
            lines.append("" if not kept else marked[1] if marked else line)
        found.update(texts_of_python("\n".join(lines)))
    return found


def texts(path):
    """[(line, call, text)] of a file, in order."""
    source = path.read_text("utf-8")
    if path.suffix == ".in":
        return sorted(texts_of_template(source))
    if path.suffix == ".go":
        return sorted(texts_of_c(source, go=True))
    if path.suffix in (".c", ".h"):
        return sorted(texts_of_c(source))
    return sorted(texts_of_python(source))


def files():
    return sorted({path for pattern in FILES for path in ROOT.glob(pattern)
                   if not path.name.endswith("_test.go")})


def main():
    for path in [pathlib.Path(name).resolve() for name in sys.argv[1:]] or \
            files():
        for line, call, text in texts(path):
            print(f"{path.relative_to(ROOT)}:{line}: {call}: "
                  f"{text.encode('unicode_escape').decode()}")


if __name__ == "__main__":
    main()
