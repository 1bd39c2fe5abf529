"""Where trainer differs from OmegaConf and Hydra on purpose, each with the reason why no training configuration meets it.

run.py reads this list: a case in it must differ, every other one must agree. A case is its YAML text.
"""

BEYOND_64_BITS = ["99999999999999999999", "-99999999999999999999", "0xffffffffffffffffffff", "9223372036854775808", "-9223372036854775809"]

ACCEPTED = [
    ("An integer beyond 64 bits is refused (one of more than 100 characters is a text): no key takes one, and a long number such as "
     "an id is written in quotes.",
     [f"a: {n}\n" for n in BEYOND_64_BITS] + [f"a: [{n}]\n" for n in BEYOND_64_BITS] + [f"{n}: 1\n" for n in BEYOND_64_BITS]
     + ["a: 99999999999999999999:1", "a: " + "9" * 4301, "a: 0x" + "f" * 300]),
    ("yaml-cpp takes a tab between words for a space, or for a part of the text, where PyYAML refuses it: the value is what one reads. "
     "A tab in the indentation is refused.",
     ["a:\tb", "a: x\ty", "a: [1,\t2]"]),
    ("yaml-cpp knows the escapes of YAML 1.2: \\' is a quote; \\N and \\_ (two characters that no path or name holds) are refused, "
     "as yaml-cpp 0.7 makes broken UTF-8 of them.",
     ["a: \"\\N\\_\\L\\P\"", "a: \"\\'\""]),
    ("yaml-cpp folds a text that consists of empty lines, or ends with them, to one line break less: paths and names have none.",
     ["a: >+\n  x\n\n  y\n\n", "a: \"\n\n\""]),
    ("The line breaks of Unicode (NEL, LS, PS) are characters like any other: editors do not write them.",
     ["a: 1\x85b: 2", "a: 1\u2028b: 2", "a: |\n  x\u2028  y\n", "a: ['\x85', \"\\x07\", 'é']\nb: 'x${a}'", "a: {'\u200b': '\u2028'}\nb: 'x${a}'"]),
    ("In brackets a word that begins with : is a text, one that begins with ? is refused, a lone ! is null, where PyYAML sees keys and tags: such "
     "words are written in quotes.",
     ["{:x: 1}", "a: [?x]", "a: [!]"]),
    ("A comment right behind | without a space is a comment for yaml-cpp: it is what one means.",
     ["a: |# c\n  x\n"]),
    ("The tags !!omap, !!pairs and octal numbers in Python's form behind !!int are refused: no key takes such a value.",
     ["a: !!omap [b: 1, c: 2]", "a: !!pairs [b: 1, b: 2]", "a: !!int 0o7"]),
]

SWEEPS = [
    ("sort() and casts act on the values of a range(), where Hydra turns its bounds around or casts them and the step: its values are others "
     "(2, 6, 10 become 5, 9, 13), or none.",
     ["k=sort(range(10,1,-4))", "k=sort(range(5,0,-2))", "k=sort(range(0,5,2),reverse=true)", "k=sort(range(0,1,0.3),reverse=true)",
      "k=int(range(0,2,0.5))", "k=int(range(1,4,1.5))"]),
]

REASONS = {case: reason for reason, cases in ACCEPTED for case in cases}
SWEEP_REASONS = {command: reason for reason, commands in SWEEPS for command in commands}
