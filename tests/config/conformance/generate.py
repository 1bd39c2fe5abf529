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



# Interpolations: one key of a document with some of everything in it.

CONTEXT = """b: 5
c: {d: x, e: [1, two, '${b}'], g: [{h: 9}], s: '${.d}', t: '${..b}', 'k k': 1, k-k: 2, $k: 3, "1": one, null_: null}
n: null
m: ???
t: '12'
f: 1.0e-05
y: true
k: d
k2: b
k3: c.e
u: A
env: oc.env
id: CONF_A
l: [x, 1, 1.5, null, '${b}', {q: '${b}', r: '${..0}'}, [1, '${..1}'], "it's", "???"]
i: {1: one, true: on, 1.5: f, x: '${.y}', y: '${b}', z: {w: '${..y}', v: '${...b}'}}
e1: {}
e2: []
mi: {a: "???", b: 1}
q: "a'b"
w: ' x '
j: '[1, 2, {a: b}]'
big: 99999999999999999999
ref: '${c}'
rl: '${l}'
"""

PATHS = """b c c.d c.e c.e.0 c.e[1] c.e.2 c.g[0].h c[d] [c].d [c][e][0] c.s c.t n m t f y k u l l.0 l.4 l[5] l[5].q l.5.r l[6][1] l.8 i i.x i.z.w i.z.v i.1 i.true e1 e2 mi mi.a
mi.b q w j big ref ref.d ref.e.0 rl rl.3 rl[6] missing c.missing b.x n.x m.x l.9 l.-1 l.x l.+1 l.01 l.1_0 c.e[${b}] c.${k} ${k2} ${k3}.0 ${k3}[0] c.k-k c.$k c.1 a .b ..b ...b .c.d .c.e.0 ..c
.b.x .l.0 .missing ..missing c. .c. c..d c[] [] . .. c.[d] .[c] c[d].x c[e.0] c[d c]d é""".split()

WORDS = r"""x x\ y x_y x-y 1 -1 1.5 1e3 .5 5. true false null NULL 007 1_000 inf nan a.b /a/b a:b a|b ?x @x *x %x +x $x x$ ~x 'x' "x" 'x,y' "x}y" 'it\'s' "a\"b" '${b}' "${b}" 'x${b}y' '\${b}' '\\${b}' '' "" [1] [] [1,x]
{} {a:1} {a:1,b:[x]} {1:x} [[1],{a:b}] \, \} \{x\} \(x\) \[x\] \: \= \\ x\,y (x) x=y x#y é 日 x;y ${b} ${c.d} ${n} ${missing} ${c} x${b} ${b}x ${b}${b} [${b}] {a:${b}} 'a' 'b' 1: :1 : - . .. [1 1] {a} {a:} {:a} [,] [1,] 99999999999999999999 1:30 0x10""".split(" ")

RESOLVERS = "oc.env oc.env oc.env oc.select oc.select oc.decode oc.decode oc.create oc.dict.keys oc.dict.values oc.deprecated now foo oc.foo ${env} oc env".split()


def spaced(random, text):
    return random.choice(["", "", "", "", "", "", "", "", " ", "  ", "\t"]) + text + random.choice(["", "", "", "", "", "", "", "", " "])


def argument(random, name, depth):
    kind = random.random()
    if name == "oc.env" and kind < 0.6:
        return random.choice(["CONF_A", "CONF_NONE", "CONF_NONE", "CONF_EMPTY", "CONF_TEXT", "CONF_LIST", "${id}", "CONF_${u}", "'CONF_A'", "5"])
    if name.startswith(("oc.select", "oc.dict", "oc.dep")) and kind < 0.8:
        return random.choice([random.choice(PATHS), "'" + random.choice(PATHS) + "'", '"' + random.choice(PATHS) + '"', "''"])
    if name == "now":
        return random.choice(["%Y", "%Y-%m", "x", "''", "5", "${b}", "'%d %%'"])
    if name in ("oc.decode", "oc.create") and kind < 0.7:
        return random.choice(["'" + random.choice(WORDS).replace("'", "") + "'", '"' + random.choice(WORDS).replace('"', "") + '"', "${" + random.choice(["t", "j", "n", "w", "q", "f", "c", "l"]) + "}", random.choice(WORDS), "${oc.env:CONF_LIST}", "' '", "''"])
    if depth > 0 and kind < 0.9:
        return inside(random, depth - 1)
    return random.choice(WORDS)


def inside(random, depth):
    """One ${...}."""
    if random.random() < 0.5:
        return "${" + spaced(random, random.choice(PATHS)) + "}"
    name = random.choice(RESOLVERS)
    count = random.choice([0, 1, 1, 1, 1, 2, 2, 2, 3])
    if name in ("oc.decode", "oc.create", "now", "oc.dict.keys", "oc.dict.values"):
        count = random.choice([1] * 9 + [0, 2])
    arguments = [spaced(random, argument(random, name, depth) if i == 0 else random.choice([random.choice(WORDS), argument(random, "", depth)])) for i in range(count)]
    return "${" + random.choice([""] * 9 + [" "]) + name + random.choice([""] * 9 + [" "]) + ":" + ",".join(arguments) + random.choice([""] * 19 + [","]) + "}"


def text(random):
    parts = [random.choice(["x", " ", "\\", "\\\\", "$", "{", "}", "'", '"', ":", ",", "é", ""]) if random.random() < 0.25 else inside(random, 2) for _ in range(random.choice([1, 1, 1, 1, 2, 3]))]
    result = "".join(parts)
    for _ in range(random.choice([0] * 6 + [1])):
        at = random.randrange(len(result) + 1)
        result = result[:at] + random.choice(list("${}[].:,'\"\\ x") + [""]) + result[at + random.randrange(2) :]
    return result


def single_quoted(text):
    return "'" + text.replace("'", "''") + "'"


def interpolation(random):
    return f"a: {single_quoted(text(random))}\n" + CONTEXT


def nested_interpolation(random):
    """Inside maps and lists, where relative keys count, and from one to the other."""
    def place():
        return single_quoted(text(random))
    return random.choice([
        f"w2: {{b: in, c: {{d: inner, a: {place()}}}, l: [1, {place()}]}}\n",
        f"a: [{place()}, [{place()}, {{x: {place()}}}]]\n",
        f"a: {place()}\nz: {place()}\nz2: '${{a}}'\nz3: 'x${{z}}'\n",
        f"a: {{x: '${{z}}', y: '${{.x}}'}}\nz: {place()}\n",
        f"a: '${{z.x}}'\nz: {{x: {place()}, y: [{place()}]}}\nz4: '${{oc.dict.values:z}}'\n",
    ]) + CONTEXT


# Overrides.

BASE = """a: 1
b: {c: 2, d: {e: 3}, l: [1, 2, 3], m: [{x: 1}, {y: [1]}]}
n: null
m: ???
s: text
f: 1.5
y: true
i: ${a}
z: {}
q: []
1: one
big: 99999999999999999999
bb: {i: '${a}', c: '${b}', l: '${b.l}', x: 'x${a}'}
deep: {a: {b: {c: {d: 1}}}}
"""

KEYS = """a b b.c b.d b.d.e b.l b.l.0 b.l.1 b.l.5 b.m b.m.0 b.m.0.x b.m.1.y.0 n m s f y i z q x x.y x.y.z b.x b.d.x b.c.x n.x m.x s.x z.x q.0 1 big bb.i bb.c bb.c.d bb.l bb.l.0 bb.x i.x deep.a.b deep.a.b.c.d deep.a deep.x
a.b.c b.l.x b.l.-1 $x x$ a-b a_b _a é a.0 a..b .a a. b[c] b.l[0] 1x x.01 x.1 bb null true 1.5 a@b a/b a@ @a a:b""".split()

ELEMENTS = r"""1 -1 +1 0 007 1_000 1__0 1.5 .5 5. 1e3 -1E-3 inf -inf nan true FALSE null NULL x x-y x_y x.y /x/y ./x ~/x a@b $x x$ %x *x ?x x|y a:b a:b:c +x -x 0x10 99999999999999999999 1e400 x=y 'x' "x" '' "" 'x y' "it's" 'it\'s' "a\"b" 'a\\' 'a\b'
'1' 'null' '${a}' '\${a}' '[1]' ${a} ${b.c} ${b} ${missing} x${a} ${a}x ${a}${a} ${oc.env:CONF_A} ${oc.env:CONF_NONE,x} ${oc.decode:'[1]'} ${x ${} ${a:b} ${b.${s}} \${a} \, x\,y \[ \] \{x\} \(x\) \: \= \\ a\ b \ x [] {} ??? x#y é x;y & ! `""".split(" ")


def element(random, depth):
    kind = random.random()
    if depth <= 0 or kind < 0.6:
        return random.choice(ELEMENTS)
    if kind < 0.75:
        return spaced(random, "[" + ",".join(spaced(random, element(random, depth - 1)) for _ in range(random.randrange(4))) + "]")
    if kind < 0.9:
        return "{" + ",".join(spaced(random, random.choice(["a", "b", "c", "x", "e", "d", "1", "1.5", "true", "a b", "null", "a.b", "'a'", "a-b", "$a"])) + ":" + spaced(random, element(random, depth - 1)) for _ in range(random.randrange(3))) + "}"
    return call(random, depth - 1)


def call(random, depth):
    name = random.choice(["int", "float", "str", "bool", "sort", "sort", "choice", "range", "interval", "glob", "tag", "foo"])
    simple = ["1", "2", "3", "-1", "1.5", "0.5", "x", "a", "b", "'a'", "'b'", "'1'", "true", "null", "[3,1,2]", "['b','a']", "[b,a,'c']", "[1,x]", "[1,1.5,true]", "[[2],[1]]", "{a:1}", "99999999999999999999", "1e20", "' 5 '", "'٣'", "[99999999999999999999,1,99999999999999999998]", "nan", "inf", ""]
    arguments = []
    for _ in range(random.choice([0, 1, 1, 1, 2, 2, 3])):
        word = random.choice(simple) if random.random() < 0.8 else (call(random, depth - 1) if depth > 0 else element(random, 0))
        named = random.choice(["value", "list", "sweep", "reverse", "start", "stop", "step", "end", "include", "exclude", "x"]) + "=" if random.random() < 0.15 else ""
        arguments.append(spaced(random, named + word))
    if name == "sort" and random.random() < 0.3:
        arguments.append("reverse=" + random.choice(["true", "false", "1"]))
    return name + random.choice(["", "", "", " "]) + "(" + ",".join(arguments) + ")"


def override(random):
    key = random.choice(KEYS[:44] if random.random() < 0.85 else KEYS)
    kind = random.random()
    if kind < 0.1:
        return "~" + key + random.choice(["", "", "=" + random.choice(ELEMENTS), "=", "=1", "={e:3}", "=[1,2,3]", "=1.0", "=true"])
    prefix = random.choice(["", "", "", "+", "+", "++"])
    value = random.choice(["", element(random, 2), element(random, 2), element(random, 1), call(random, 1), call(random, 1), random.choice(["{c:5}", "{e:1,w:2}", "{x:1}", "[9]", "1,2", "x y", " x ", "[{x:5}]"])])
    return prefix + key + "=" + spaced(random, value)


def noisy_override(random):
    alphabet = "ab1.,:=[]{}()'\"\\ $-+_/e0~#\t@?|%*"
    return random.choice(["a=", "+x=", "b.c=", "++b.l="]) + "".join(random.choice(alphabet) for _ in range(random.randrange(9)))


def overrides(random):
    if random.random() < 0.3:
        return [noisy_override(random)]
    return [override(random) for _ in range(random.choice([1, 1, 1, 2, 3]))]



# Hydra's own block: what may be set in it, and what ${hydra:...} sees.

HYDRA_KEYS = """run run.dir sweep.dir sweep.subdir job.name job.chdir job.num job.id job.config_name job.override_dirname job.env_set job.env_set.x job.env_copy job.config.override_dirname.kv_sep
job.config.override_dirname.exclude_keys output_subdir verbose mode searchpath runtime.cwd runtime.version foo job.foo run.foo launcher.foo
callbacks callbacks.x env help.app_name job_logging job_logging.x hydra_logging hydra_help""".split()

HYDRA_VALUES = "1 0 -1 1.5 true false null x 'x y' [] [a,b] [1,2] {} {a:1} {dir:x} ${a} ${hydra.job.name} ${missing} RUN MULTIRUN yes '1' '' [[1]] 99999999999999999999".split(" ")

HYDRA_SEEN = """job.name job.config_name job.override_dirname overrides.task overrides.hydra output_subdir verbose job.chdir runtime.cwd job.num missing job.missing job.name.x overrides.task[0] overrides.task.9 .job.name ..a
...a job.env_set mode job.config.override_dirname searchpath 'job.name' job env""".split()


def hydra_override(random):
    key = "hydra." + random.choice(HYDRA_KEYS)
    return random.choice(["~" + key] + [random.choice(["", "", "", "+", "++"]) + key + "=" + random.choice(HYDRA_VALUES)] * 8)


def hydra_block(random):
    value = random.choice(["1", "x", "null", "true", "[]", "[a]", "{}", "{a: 1}", "{dir: x}", "'${a}'", "'${hydra.job.name}'", "'${missing}'", "1.5"])
    for part in reversed(random.choice(HYDRA_KEYS).split(".")):
        value = "{" + part + ": " + value + "}"
    return f"hydra: {value}\n"


def hydra(random):
    text = f"a: {single_quoted(random.choice(['', '', 'x', 'x']) + '${hydra:' + random.choice(HYDRA_SEEN) + '}')}\nb: {{c: '${{hydra:job.name}}'}}\n"
    if random.random() < 0.3:
        text += hydra_block(random)
    changes = [hydra_override(random) for _ in range(random.choice([0, 1, 1, 1, 2]))]
    return (text, changes + random.choice([[], [], ["b.c=2"], ["~b"], ["+x='\\${y'"], ["~b='${'"], ["+y=[${a},1]"], ["hydra.run.dir=y"]]))


# A defaults list, groups and packages; what is missing.

def missing(random):
    text = "a: ???\nb: {c: ???, d: '${a}', e: [1, '???'], f: '${b.c}'}\ng: '${oc.select:a,4}'\nh: x${a}\n"
    lines = [line for line in text.split("\n") if random.random() < 0.7]
    return ("\n".join(lines) + "\n", random.choice([[], ["+a=1"], ["a=1"], ["b.c=2"], ["b={c:???}"], ["+z=???"], ["a=???"], ["b=???"], ["b.e=[???]"], ["a=1", "b.c=3"]]))


KINDS = {
    "document": lambda random: (document(random), None),
    "words": lambda random: (words(random), None),
    "number": lambda random: (number(random), None),
    "interpolation": lambda random: (interpolation(random), None),
    "nested": lambda random: (nested_interpolation(random), None),
    "calls": lambda random: (BASE, ["a=" + call(random, 1)]),
    "elements": lambda random: (BASE, [random.choice(["a=", "+x=", "++b="]) + element(random, 2)]),
    "overrides": lambda random: (BASE, overrides(random)),
    "hydra": hydra,
    "missing": missing,
}
