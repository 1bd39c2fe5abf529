"""Random cases, wide rather than sensible: most of them are wrong somewhere, and both sides must agree on that, too."""

SCALARS = """0 1 -1 +1 00 007 010 08 0o7 0x1F 0x 0x_ 0b 0b_ 0b1 0b12 1_0 _1 1_ 1__0 0_1 1:30 1:75 -1:30 1:2:3 1:30.5 190:20:30 0:0 1:9 9:60
1. 1.0 .5 -.5 5. 1.5e3 1e3 1E3 1e+3 1e-3 1_0e1_0 1._5 ._5 .5e3 .5e+3 1.e5 1e 1.5e e5 1.2.3 1e400 .inf -.inf +.inf .Inf .iNF .nan -.nan inf nan
99999999999999999999 -99999999999999999999 1:99999999999999999999 99999999999999999999:1 0xffffffffffffffffffff yes Yes yEs no on off true True tRUE y N null Null nULL ~ None
2026-11-20 a b c-d x.y a/b x= = =x << <<x <<: ??? - -- --- ... . .. ? ?x :x x: : # #x a#b %x @x `x ! !x & &x * *x | > ' " [ ] { } , a,b [a] {a} x: y""".split()

SPECIAL = ["\t", " ", "  ", "\n", "\n\n", "\r", "\r\n", "\x85", "\u2028", "\u2029", "\ufeff", "é", "日", "\x07", "\x7f", "\ud7ff", "\ue000", "\ufffd", "😀", "\xa0"]

ESCAPES = r"""\0 \a \b \t \n \v \f \r \e \" \\ \/ \N \_ \L \P \x41 \u00e9 \u2028 \U0001F600 \' \q \x4 \u12 \U00110000 \ """.split()

TAGS = """!!str !!int !!float !!bool !!null !!seq !!map !!omap !!pairs !!merge !!value ! !foo !<tag:yaml.org,2002:str> !<x> !!python/tuple
!!python/none !!timestamp !%21 !e!x !!st%72 !!int, !!""".split()


def pick(random, *weighted):
    return random.choice(weighted)


def plain(random):
    word = random.choice(SCALARS)
    if random.random() < 0.6:
        return random.choice("1 -1 x true yes null ~ 1.5 1e3 0x1F 010 1_000 .inf 1:30 abc a-b a/b é".split())
    if random.random() < 0.15:
        word += random.choice([" ", "  ", "\n  ", " #", "#", ": ", ":", ",", "\t"]) + random.choice(SCALARS)
    return word


def single(random):
    inner = "".join(random.choice(["x", "''", " ", "\n", "\n\n", " \n ", "\\", '"', "# c", ": ", "1", random.choice(SPECIAL)]) for _ in range(random.randrange(5)))
    return f"'{inner}'"


def double(random):
    parts = ["x", " ", "\n", "\n\n", " \n ", "'", "# c", ": ", "1", "\\\n", "\\\n  ", "\n---\n", "\n...", random.choice(SPECIAL), random.choice(ESCAPES), random.choice(ESCAPES)]
    return '"' + "".join(random.choice(parts) for _ in range(random.randrange(5))) + '"'


def block(random, margin):
    head = random.choice("|>") + random.choice(["", "", "+", "-", "2", "1-", "+1", "0", "9"]) + random.choice(["", "", "", " # c", "# c", " x", " "])
    lines = []
    for _ in range(random.randrange(5)):
        text = random.choice(["x", "y z", "# c", "", "", " x", "\tx", "  ", "a: b", "- a", "---", "...", random.choice(SPECIAL)])
        lines.append((margin + random.choice(["", "", "", " ", "  "]) if text else random.choice(["", margin])) + text)
    return head + "\n" + "\n".join(lines)


def scalar(random):
    return random.choice([plain, plain, plain, single, double])(random)


def properties(random):
    if random.random() < 0.93:
        return ""
    return random.choice([random.choice(TAGS) + " ", f"&{random.choice('pqr')} ", f"&{random.choice('pq')} {random.choice(TAGS)} ", "&p &q ", "!!str\n  ", "&", "!", "&p"])


def flow(random, depth):
    kind = random.random()
    if depth <= 0 or kind < 0.5:
        return properties(random) + scalar(random) if random.random() < 0.9 else f"*{random.choice('pq')}"
    comma = random.choice([", ", ",", " ,", ",\n  "])
    if kind < 0.75:
        return properties(random) + "[" + comma.join(flow_entry(random, depth - 1) for _ in range(random.randrange(4))) + random.choice(["", "", "", " "] * 3 + [","]) + "]"
    return properties(random) + "{" + comma.join(flow_pair(random, depth - 1) for _ in range(random.randrange(4))) + random.choice(["", "", "", " "] * 3 + [","]) + "}"


def flow_entry(random, depth):
    return flow(random, depth) if random.random() < 0.85 else flow_pair(random, depth)


def key(random):
    if random.random() < 0.85:
        return random.choice("abcdef") + random.choice("123456789")
    return random.choice([random.choice("abc"), "<<", "<<", "=", "1", "1.0", "yes", "null", "'a'", '"a"', "? a", "!!str 1", "&p k", "*p", "a b", "[a]", "{a: 1}", scalar(random), "!!merge x", "hi", "1e3"])


def flow_pair(random, depth):
    colon = random.choice([": "] * 12 + [":", " : ", " :", ":\n  ", ""])
    return random.choice([""] * 20 + ["? "]) + key(random) + colon + random.choice([flow(random, depth), flow(random, depth), ""])


def value(random, margin, depth):
    """What follows a colon or a dash, its line break included."""
    kind = random.random()
    if depth <= 0 or kind < 0.45:
        return " " + properties(random) + scalar(random) + random.choice([""] * 20 + [" # c", " # c", " # c", " ", "#c", "\t"]) + "\n"
    if kind < 0.55:
        return " " + flow(random, 2) + "\n"
    if kind < 0.65:
        return " " + properties(random) + block(random, margin + "  ") + "\n"
    if kind < 0.7:
        return f" *{random.choice('pq')}\n"
    if kind < 0.75:
        return "\n"
    return " " + properties(random) + "\n" + node(random, margin + random.choice(["  "] * 12 + [" ", "    "] * 3 + ["", "\t"]), depth - 1)


def node(random, margin, depth):
    if random.random() < 0.3:
        return "".join(f"{margin}-{value(random, margin, depth)}" for _ in range(random.randrange(1, 4)))
    return "".join(entry(random, margin, depth) for _ in range(random.randrange(1, 4)))


def entry(random, margin, depth):
    if random.random() < 0.04:
        return f"{margin}? {key(random)}\n" + random.choice([f"{margin}:{value(random, margin, depth)}", ""])
    colon = random.choice([":"] * 50 + [" :", "", ":x"])
    return margin + key(random) + colon + value(random, margin, depth)


def mutated(random, text):
    for _ in range(random.choice([0] * 8 + [1, 1, 2])):
        at = random.randrange(len(text) + 1)
        kind = random.random()
        if kind < 0.4:
            text = text[:at] + random.choice(SPECIAL + list("[]{},:-?#&*!|>'\"%@` \n") + ["---\n", "...\n", "\n", "  "]) + text[at:]
        elif kind < 0.8:
            text = text[:at] + text[at + 1 + random.randrange(3) :]
        else:
            text = text[:at]
    return text


def document(random):
    head = random.choice([""] * 40 + ["---\n", "--- ", "%YAML 1.1\n---\n", "%YAML 2.0\n---\n", "%TAG !e! tag:yaml.org,2002:\n---\n", "%x\n---\n", "# c\n", "\ufeff"])
    start = random.choice(["", "", "p0: &p {a: 1, b: 2}\nq0: &q [1, 2]\n"])
    tail = random.choice([""] * 40 + ["...\n", "---\n", "...\n---\nx: 1\n", "... x\n", "# c"])
    return mutated(random, head + start + node(random, "", 3) + tail)


def words(random):
    """Documents of one key: the widest range of scalars."""
    alphabet = "0123456789_.eExXbBoO+-:infa '\"~#=<>!&*?,[]{}|%@`\\\t\n"
    text = "".join(random.choice(alphabet) for _ in range(random.randrange(1, 7)))
    return f"a: {random.choice(['', '', '', random.choice(TAGS) + ' '])}{random.choice([text, text, chr(34) + text + chr(34), scalar(random)])}\n"


def number(random):
    text = "".join(random.choice("0123456789_.e+-:xb") for _ in range(random.randrange(1, 9)))
    return f"a: {random.choice(['', '', '!!int ', '!!float ', '! '])}{text}\n"


KINDS = {
    "document": lambda random: (document(random), None),
    "words": lambda random: (words(random), None),
    "number": lambda random: (number(random), None),
}
