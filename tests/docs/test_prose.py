#!/usr/bin/env python3
"""What prose.py takes for a sentence, and what it finds fault with."""
import pathlib
import re
import unittest

import prose

LONG = "word " * 32 + "end."  # 33 words


def found(text, suffix=".md", banned=()):
    path = pathlib.Path("page" + suffix)
    return [(fault.line, fault.kind)
            for fault in prose.faults(path, text, list(banned))]


class Sentences(unittest.TestCase):
    def test_one_word_too_many_is_found_with_the_line_of_its_first_word(self):
        self.assertEqual(found("Short.\n\nOne. " + LONG), [(3, "long")])
        self.assertEqual(found("word " * 31 + "end."), [])

    def test_a_sentence_goes_on_over_lines_and_ends_at_a_colon(self):
        self.assertEqual(found("word\n" * 32 + "end."), [(1, "long")])
        self.assertEqual(found("word " * 20 + "end:\n" + "word " * 20), [])

    def test_headings_items_and_cells_stand_alone(self):
        half = "word " * 17
        for text in (f"# {half}\n{half}", f"- {half}\n- {half}",
                     f"1. {half}\n2. {half}", f"| {half} | {half} |",
                     f"{half}\n\n{half}", f"{half}\n- {half}"):
            with self.subTest(text[:6]):
                self.assertEqual(found(text), [])
        self.assertEqual(found(f"- {half}\n  {half}"), [(1, "long")])

    def test_a_bar_in_code_parts_no_cell(self):
        half = "word " * 17
        self.assertEqual(found(f"| {half} `a|b` {half} |"), [(1, "long")])

    def test_blocks_of_code_are_not_read(self):
        self.assertEqual(found(f"```sh\n{LONG}\n```\n{LONG}"), [(4, "long")])
        self.assertEqual(found(f"- item\n  ```\n  {LONG}\n  ```"), [])

    def test_a_header_has_comments_alone(self):
        text = f"{LONG}\n/* Short.\n *\n * {LONG} */\nint x; /* {LONG} */\n"
        self.assertEqual(found(text, ".h"), [(4, "long"), (5, "long")])
        self.assertEqual(found(f"/* Short:\n *     {LONG} */", ".h"), [])

    def test_each_error_of_a_header_stands_alone(self):
        half = "word " * 17
        text = f"/* Errors:\n *   IO - {half}\n *   NO_MEMORY - {half} */"
        self.assertEqual(found(text, ".h"), [])
        self.assertEqual(found(f"/* Errors:\n *   IO - {LONG} */", ".h"),
                         [(2, "long")])

    def test_a_directive_is_not_read(self):
        text = f".. table::\n\n   {LONG}\n\n{LONG}"
        self.assertEqual(found(text, ".rst"), [(5, "long")])


class Words(unittest.TestCase):
    def test_a_phrase_is_found_outside_of_code(self):
        banned = [(re.compile("had better"), "should")]
        self.assertEqual(found("It had better wait.", banned=banned),
                         [(1, "phrase")])
        self.assertEqual(found("`had better` is code.", banned=banned), [])

    def test_the_phrases_of_the_house_style_are_found(self):
        banned = prose.phrases()
        for text in ("Few copies are the aim.", "Such a one can be sent.",
                     "As a rule that takes a round trip.",
                     "Who would rather be told than pay for that asks first.",
                     "It had better have consumed what came before.",
                     "It was tested with drivers that are none.",
                     "Figures that were asked for",
                     "On networks that we have not met",
                     "So is one of which the application has placed some.",
                     "The door at a URL"):
            with self.subTest(text):
                self.assertIn((1, "phrase"), found(text, banned=banned))
        for text in ("What does it cost, and what do you get for it today?",
                     "What to do", "`None` is sent as None."):
            with self.subTest(text):
                self.assertEqual(found(text, banned=banned), [])

    def test_three_passive_verbs_are_a_chain(self):
        self.assertEqual(found("It is sent, is then kept and was not read."),
                         [(1, "passive")])
        self.assertEqual(found("It is sent and is kept, as it is red."), [])


if __name__ == "__main__":
    unittest.main()
