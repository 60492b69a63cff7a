#!/usr/bin/env python3
"""Every text that the library can say keeps to the house's rules.

scripts/texts.py lists them. A text has no full stop behind its one sentence,
puts names in single quotes, has units as s, ms, us and bytes, and says none of
the phrases of phrases.txt or of ODD."""
import pathlib
import re
import sys
import unittest

import prose

sys.path.insert(0, str(prose.ROOT / "scripts"))
import texts  # noqa: E402

ODD = (
    (r"\bthat cannot be\b(?! \w+(?:ed|en|wn|t)\b)", '"impossible", "invalid"'),
    (r"(?<!there )\bis no [a-z]", '"is not a ..."'),
    (r"\b(?:is there|comes) twice\b", '"occurs twice"'),
    (r"\bare the most\b", '"at most ..."'),
    (r"\bis gone\b", '"has ended", "was destroyed"'),
    (r"\b(?:may|can) not\b", '"must not", "cannot"'),
    (r"\bhas to be\b", '"must be"'),
)
RULES = [(re.compile(r"^[^A-Z][^.]*[a-z)']\.$"), "no full stop"),
         (re.compile(r"!$"), "no exclamation mark"),
         (re.compile(r"`\{\}`"), "names stand in single quotes"),
         (re.compile(r"\{\} ?(?:secs?|seconds|msecs?|milliseconds|usecs?|"
                     r"microseconds)\b"), "units are s, ms and us"),
         *((re.compile(pattern), advice) for pattern, advice in ODD)]
# Of a C program that is compiled, and of lists of what the field of a class is.
SILENT = {"_Static_assert", "re.compile"}
FIELDS = {"_intercept.py", "_told.py", "_serve.py", "_often.py"}
# The caller's quotes: a signature is JSON, and so is a key of a workload.
ALLOWED = {
    "not admitted: the certificate of {} is not for '{}', but for {}",
}


def wrong(text, banned):
    """What is wrong with a text."""
    found = [advice for pattern, advice in RULES if pattern.search(text)]
    return found + [f"'{words}': {advice}"
                    for words, advice in prose.phrases_in(text, banned)]


class Texts(unittest.TestCase):
    def test_each_text_keeps_to_the_rules(self):
        banned, faults, count = prose.phrases(), [], 0
        for path in texts.files():
            for line, call, text in texts.texts(path):
                if call in SILENT or text in ALLOWED or \
                        not call and path.name in FIELDS:
                    continue
                count += 1
                faults += [f"{path.relative_to(texts.ROOT)}:{line}: {advice}: "
                           f"{text}" for advice in wrong(text, banned)]
        self.assertGreater(count, 2000)
        self.assertEqual(faults, [], "\n".join(["", *faults]))

    def test_a_text_that_breaks_a_rule_is_found(self):
        banned = prose.phrases()
        for text in ("the map is empty.", "no such device!", "`{}` is empty",
                     "no answer in {} seconds", "a length that cannot be",
                     "{} is no device", "the key is there twice",
                     "{} bytes are the most", "the worker is gone",
                     "a callback may not wait", "the name has to be short",
                     "told of it by whom"):
            with self.subTest(text):
                self.assertTrue(wrong(text, banned))
        for text in ("tensor '{}': ndim {} exceeds {}", "there is no tensor",
                     "waits for {} s", "the thread could not be started"):
            with self.subTest(text):
                self.assertEqual(wrong(text, banned), [])


class Lists(unittest.TestCase):
    def test_texts_of_c_are_joined_and_named_by_their_call(self):
        source = '/* "a comment here" */ f(x, g("%d of " "the %" PRIu64 "\\n"))'
        self.assertEqual(list(texts.texts_of_c(source)),
                         [(1, "g", "{} of the {}\n")])

    def test_texts_of_python_are_not_docstrings(self):
        source = '"""A doc string."""\nraise Bad(f"no {x} there" + " at all")'
        self.assertEqual(list(texts.texts_of_python(source)),
                         [(2, "Bad", "no {} there at all")])


if __name__ == "__main__":
    unittest.main()
