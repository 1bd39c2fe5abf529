"""The cases: (YAML text, overrides); overrides None means that OmegaConf alone reads the file.

What JSON cannot hold, such as !!binary, counts as refused.
"""

SCALARS = """1 -1 +1 0 -0 00 007 010 08 0o10 0x1F 0xg 0b101 0b12 1_000 _1 1_ 1__0 0_1 1:30 1:75 -1:30 1:2:3 1:30.5
1. 1.0 .5 -.5 +.5 5. -5. 1.5e3 1e3 1E3 1e+3 1e-3 -1e-3 +1e3 1_0e1_0 1_0.0_1 1._5 ._5 .5e3 .5e+3 .5e-3 1.e5 1e 1.5e e5 1.2.3
1e400 -1e400 1e-400 .inf -.inf +.inf .Inf .INF .iNF .nan .NaN .NAN -.nan inf nan 99999999999999999999 -99999999999999999999
0xffffffffffffffffffff yes Yes YES yEs no No NO on On ON off Off OFF true True TRUE tRUE false False FALSE y Y n N null Null NULL
nULL ~ None none nil 2026-11-20 2026-11-20T10:00:00Z 12:30:45 abc a-b a_b a.b a/b a\\b a%b a=b "1" '1' "true" '' "" 'a''b' "a\\nb"
"\\u00e9" é 日本 "\\x41" '\\n' ??? "???" '???' 1,2 a,b <<x =x x= 1+1 1-1 1.0.0 v1.0 -a --a -1a 1a 0x 0b . .. ... - + +- e E 1E 0.1
123456789012345678 9223372036854775807 9223372036854775808 -9223372036854775808 -9223372036854775809 3.141592653589793 1e16 1e15 1e22
123456789.123456789 0.1e-6 1.0e-5 5e-324 1.7976931348623157e308 -0.0 !!str 5 !!int "5" !!float 5 !!float "1" !!bool "yes" !!null ""
!!str true !!int 1_0 !!str null !!int x !foo 5 ! 5""".replace("\n", " ")


def scalar_words():
    words, rest = [], SCALARS.split(" ")
    while rest:
        word = rest.pop(0)
        if word.startswith("!") and rest:
            word += " " + rest.pop(0)
        words.append(word)
    return words


DOCUMENTS = [
    "", "# nothing", "---", "---\na: 1", "a: 1\n...", "a: 1\n---\nb: 2", "null", "5", "text", "[1, 2]", "{}", "a:", "a: ",
    "a: {}\nb: []", "a: [1, [2, [3]], {b: c}]", "a:\n- 1\n- x\n- null\n-\n- {k: v}\n", "a: {b: {c: {d: 1}}}",
    "a: 1\na: 2", "a: 1\n'a': 2", "a: {b: 1, b: 2}", "1: a\n1: b", "1: a\n'1': b", "yes: 1", "on: 1\noff: 2", "1.5: a", "null: a", "~: a",
    "? a\n: b", "? [1]\n: b", "'a b': 1", "a.b: 1", "a/b: 1", "é: ü", "a: |\n  x\n  y\n", "a: >\n  x\n  y\n", "a: |-\n  x\n",
    "a: >-\n  x\n\n  y\n", "a: |+\n  x\n\n", "a: x y\n  z", "a: 'x\n  y'", "a: \"x\\\n  y\"", "a: x # c", "a: x#c", "a: '#'",
    "a: &x 1\nb: *x", "a: &x {b: 1}\nc: *x", "a: &x [1, 2]\nb: *x\nc: [*x, *x]", "a: *x", "a: &x [*x]", "a: &x {b: *x}",
    "a: &x {p: 1, q: 2}\nb:\n  <<: *x\n  q: 3", "a: &x {p: 1}\nb: &y {p: 2, r: 4}\nc:\n  <<: [*x, *y]", "b: {<<: {x: 1}, x: 2}",
    "b: {x: 2, <<: {x: 1, y: 3}}", "a:\n  <<: 5", "a:\n  <<: [1]", "'<<': 5", "a: &x {p: 1}\nb:\n  <<: *x\n  <<: *x",
    "a: &x {p: 1}\nb: &y\n  <<: *x\n  q: 2\nc:\n  <<: *y\n  r: 3", "a:\n\tb: 1", "a: [1, 2", "a: {b: 1", "a: 'x", "a: b: c", "a: [a: 1]",
    "a: {b}", "a: {b, c: 1}", "a: ???", "a: {b: ???}", "a: [???]", "a:\n- ???", "a: {b: '???'}", "- a\n- b", "a: - b", "a: @b", "a: `b`", "a: %b",
    "a: !!seq [1]", "a: !!map {b: 1}", "a: !!set {b, c}", "a: !!timestamp 2026-01-01",
    "a: !!python/tuple [1]", "%YAML 1.1\n---\na: yes", "\ufeffa: 1", "a: \x07", "a: 1\r\nb: 2\r\n", "a : 1", "a:1", "\"a\": 1",
    "a:   1   ", "a: -", "a: ?", "a: :", "a: ::", "a: x: y", "a: [x: y, z]", "a: {x: [y, {z: w}]}", "a: ,", "a: [,]", "a: [1,]", "a: {b: 1,}",
    "a: [1,,2]", "a: &x\nb: *x", "a: !!str\nb: 1", "? a", "? a\n? b", "a: \n  b: 1\n c: 2", "a:\n  b: 1\n   c: 2", "a: \"\\t\"", "a: '\t'",
    "a: \"x\" y", "a: 'x' # c", "a: |2\n    x\n", "a: \"\\/\"", "a: \"\\q\"", "a: \"\\x4\"", "a: [ 'x','y' ]", "a: {'x':1}", "a: {\"x\":1}", "a: {x:1}",
    "a: x\n\n\nb: y", "{a: 1, b: 2}", "{a: 1}\nb: 2", "a: [1\n, 2]", "a:\n  - b: 1\n    c: 2\n  - d", "a:\n- - 1\n  - 2\n- - 3", "a: 0.10", "a: 1e5\nb: 1E-05",
    "a: >+\n  x\n\n  y\n\n", "a: =", "a: <<", "a: {=: 1}", "a: {!!merge <<: {x: 1}}", "a: {!!merge y: {x: 1}, x: 2}", "a: &x 1\nb: &x 2", "a: &x k\n*x : 2", "a: &x k\nb: {*x : 2}",
    "a: \"\\N\\_\\L\\P\"", "a: \"\\'\"", "a: '\n'", "a: \"\n\n\"", "a: 0x_", "a: 0b_", "a: 99999999999999999999:1", "a: !!int 0o7", "a: " + "9" * 4301, "a: 0x" + "f" * 300, "a:\tb", "a: x\ty", "a:\n  b: 1\n\tc: 2",
    "a: [1,\t2]", "{:x: 1}", "a: [?x]", "a: [!]", "a: |# c\n  x\n", "a: | # c\n  x\n", "a: 1\rb: 2", "a: 1\x85b: 2", "a: 1\u2028b: 2", "a: 'x\u2029y'", "a: |\n  x\u2028  y\n", "a: " + "[" * 70 + "]" * 70, "a: " + "[" * 300 + "]" * 300,
    "a: !!omap [b: 1, c: 2]", "a: !!pairs [b: 1, b: 2]", "a: !!omap {b: 1}", "a: !!set {b}", "a: !!binary aGk=", "a: !!float 1:30.5", "a: !!str [1]", "a: !!python/none x", "a: !!python/name:os.system x", "'{a: 1}'", "'a: 1'", "''", "'5'",
    "".join(f"a{i}: '${{a{i + 1}}}'\n" for i in range(55)) + "a55: 1", "a: '" + "${oc.select:x," * 70 + "1" + "}" * 70 + "'", "a: ['\x85', \"\\x07\", 'é']\nb: 'x${a}'", "a: {'\u200b': '\u2028'}\nb: 'x${a}'",
    "a: !!float .inf", "a: !!int 0x1f", "a: !!bool 1", "a: !!null x", "a: !!str ''", "? !!str 1\n: x", "? 'x'\n: 1",
]

INTERPOLATIONS = """${b} ${c.d} ${c.e.0} ${c.e[0]} ${c[e][1]} ${c.[e]} ${[c].d} ${.b} ${..b} ${c} ${c.e} ${n} ${m} ${missing} ${c.missing} ${b.x} ${n.x}
${c.e.5} ${c.e.-1} ${c.e.x} ${c.e.+1} ${c.e.01} ${c.e.1_0} ${a} x${b}y x${c}y x${c.e} ${b}${t} ${n}x ${f}x ${y}x ${c.${k}} ${${k2}} ${c.x${k}} ${c.${b}} ${ b } ${b }
${ b} ${b ${} ${ } ${b}} {${b}} $${b} $b {b} \\${b} \\\\${b} \\\\\\${b} \\\\\\\\${b} x\\y${b} \\x${b}\\ ${b}\\ ${b}\\\\ \\$b \\{b} ${b:} ${oc.env:CONF_A} ${oc.env:CONF_NONE}
${oc.env:CONF_NONE,8} ${oc.env:CONF_NONE,null} ${oc.env:CONF_NONE,x\\ y} ${oc.env:CONF_NONE,'x,y'} ${oc.env:CONF_NONE,"x}y"} ${oc.env:CONF_NONE,${b}} ${oc.env:CONF_NONE,${c.d}}
${oc.env:CONF_NONE,[1]} ${oc.env:CONF_NONE,{a:1}} ${oc.env:CONF_NONE,} ${oc.env:CONF_NONE,1.50} ${oc.env:CONF_NONE,true} ${oc.env:CONF_NONE,1_000} ${oc.env:CONF_EMPTY} ${oc.env:CONF_EMPTY,x}
${oc.env:${t}} ${oc.env:5} ${oc.env:} ${oc.env:a,b,c} ${oc.env:'CONF_A'} ${oc.env:"CONF_A"} ${oc.env:CONF_${u}} ${oc.decode:${oc.env:CONF_A}} ${oc.decode:${oc.env:CONF_LIST}}
${oc.decode:null} ${oc.decode:'1.0'} ${oc.decode:'{a:1,b:[x,2]}'} ${oc.decode:'[1'} ${oc.decode:5} ${oc.decode:"'x'"} ${oc.decode:'x y'} ${oc.decode:'true'} ${oc.decode:'${b}'} ${oc.decode:''}
${oc.decode:'[${b},${c.d}]'} ${oc.decode:${t}} ${oc.select:b} ${oc.select:missing} ${oc.select:missing,5} ${oc.select:c.d,5} ${oc.select:m,5} ${oc.select:n,5} ${oc.select:c} ${oc.select:.b}
${oc.select:missing,${b}} ${oc.select:b.x,7} ${oc.select:missing,[1,2]} ${oc.select:'c.e.0'} ${oc.select:"c.e[1]"} ${oc.select:c.e.0} ${oc.select:5} ${oc.select:} ${oc.dict.keys:c} ${oc.dict.values:c}
${oc.dict.keys:b} ${oc.dict.values:missing} ${oc.dict.keys:.c} ${oc.dict.values:.c} ${oc.dict.keys:c.e} ${oc.dict.values:n} ${oc.create:{x:1,y:[2]}} ${oc.create:[1,${b}]} ${oc.create:5}
${foo:1} ${oc.foo:1} ${oc.env} ${foo:bar ${x:y${} ${b.} ${.} ${..} ${...b} ${....b} ${b..c} ${c.e[0} ${c.e]0} ${c[e]0} ${c.e[0].x} ${c.g[0].h} ${c.g.0.h} ${c["d"]} ${c['d']} ${c d} ${c,d} ${c=d} ${c-d}
${now:%Y} x_${now:%Y}_y ${z} ${z2} ${s1} ${s2} ${r1} ${p.q} ${p.r} ${p} ${deep.l.0} ${deep} ${'b'} ${"b"} ${1} ${i.1} ${i} ${true} ${null} ${oc.env:CONF_NONE,\\,} ${oc.env:CONF_NONE,\\}}
${oc.env:CONF_NONE,a:b} ${oc.env:CONF_NONE,a|b?c@d*e} ${oc.env:CONF_NONE,'it\\'s'} ${oc.env:CONF_NONE,"a\\"b"} ${oc.env:CONF_NONE,'a\\\\'} ${oc.env:CONF_NONE,a'b'} ${oc.env:CONF_NONE,=} ${oc.env:CONF_NONE,(a)}
${oc.env:CONF_NONE,~/x} ${oc.env:CONF_NONE,/a/b.c-d} ${oc.env:CONF_NONE,'${b}'} ${oc.env:CONF_NONE,'\\${b}'} ${oc.env:CONF_NONE,'\\\\${b}'} ${oc.env:CONF_NONE,\\\\} ${oc.env:CONF_NONE,1e3} ${oc.env:CONF_NONE,.5}
${oc.env:CONF_NONE,-inf} ${oc.env:CONF_NONE,NULL} ${oc.env:CONF_NONE,nulll} ${oc.env:CONF_NONE,007} ${oc.env:CONF_NONE,"${oc.env:CONF_A}"} ${oc.decode:'0x10'} ${oc.decode:'007'} ${oc.decode:'1__0'} ${oc.decode:'a,b'}
${oc.decode:'{a:1,a:2}'} ${oc.decode:'{1:x,true:y}'} ${oc.decode:'[]'} ${oc.decode:'{}'} ${oc.decode:'[,]'} ${oc.decode:'[1,]'} ${oc.decode:'-1_0'} ${oc.decode:'.5e-3'} ${oc.decode:'5.'} ${oc.decode:'${missing}'}"""

CONTEXT = """
b: 5
c: {d: x, e: [1, two], g: [{h: 9}]}
n: null
m: ???
t: "12"
f: 1.0e-05
y: true
k: d
k2: b
u: A
z: [x, 1, 1.5, null, true, '${b}', {q: '${b}'}, "it's"]
z2: {a: '${b}', b: [1.0]}
s1: '${s2}'
s2: '${s1}'
r1: '${r1}'
p: {q: '${.r}', r: '${..b}', s: {t: '${...b}', u: '${..r}'}}
deep: {l: ['${..b2}', '${.2}', 3], b2: 7}
i: {1: one, '2': two}
"""

INTERPOLATION_DOCUMENTS = [
    "a: {b: '${a}'}", "a: '${b}'\nb: '${a}'", "a: {x: '${b}'}\nb: {y: '${a}'}", "a: {b: {c: '${a.b}'}}", "a: ['${a}']", "a: ['${.1}', 2]",
    "a: {b: ['${..c}', '${...d}'], c: 1}\nd: 2", "a: '${b.c}'\nb: '${d}'\nd: {c: 5}", "a: {x: '${.y}', y: 2}\nb: '${a}'", "a: {x: '${..y}'}\nb: {y: 3, c: '${a}'}\ny: 1",
    "a: '${b}'\nb: ???", "a: '${b.c}'\nb: ???", "a: '${b.c}'\nb: {c: ???}", "a: 'x${b}'\nb: ???", "a: ???\nb: [???, {c: ???}]", "a: '${oc.select:b}'\nb: ???", "a: ${b}\nb: 1",
    "a: ${b.c}\nb: {c: [1]}", "a: {b: ${c}, c: 1}\nc: 2", "a: [${c}]\nc: 2", "a: ${oc.env:CONF_A}", "a: {b: ${oc.env:CONF_A}}", "a: ${oc.env:CONF_NONE,x}", "a: ${oc.env:CONF_A, x}",
    "a: ${b}${b}\nb: 1", "a: ${b} ${b}\nb: yes", "a: -${b}\nb: 1", "a: '${b}'\n'b': {<<: {c: 1}}", "${b}: 1\nb: 2", "a: '${b}'\nb: |\n  x\n  y\n", "a: \"${b}\\n\"\nb: 1.0",
    "a: ${oc.dict.values:b}\nb: {x: '${.y}', y: 1}", "a: {q: '${oc.dict.values:..b}'}\nb: {x: '${.y}', y: 1}", "a: ${oc.dict.keys:b}\nb: {1: x, y: z}", "a: '${oc.dict.values:b}'\nb: {c d: 1}",
    "a: x${oc.dict.keys:b}\nb: {x: 1}", "a: x${oc.dict.values:b}\nb: {x: 1}", "a: x${oc.decode:'[1, a]'}", "a: x${b}\nb: {c: '${d}', e: [null, 1.0, 'q']}\nd: 1", "a: '${oc.select:b.c,9}'\nb: '${d}'\nd: {c: 4}",
    "a: '${b[c]}'\nb: {c: 1}", "a: '${b[c.d]}'\nb: {c: {d: 1}}", "a: '${b.c d}'\nb: {c d: 1}", "a: '${b.c-d}'\nb: {c-d: 1}", "a: '${b/c}'\nb/c: 1", "a: '${é}'\né: 1", "a: '${b}'\nb: \"\\\\${c}\"", "a: \"\\\\${b}\"",
]

BASE = "a: 1\nb: {c: 2, d: {e: 3}, l: [1, 2, 3]}\nn: null\nm: ???\ns: text\nf: 1.5\ny: true\ni: ${a}\nz: {}\nq: []\n1: one\nbb: {i: '${a}'}\n"

OVERRIDES = """a=2|a=|a=x|a=null|a=1.5|a=true|a='x y'|a="x y"|a=x y|a= x |a=[1,2]|a={x:1}|a=1,2|a='1,2'|a=\\,|a=x\\,y|a=x\\=y|a=x=y|a=[]|a={}|a=[1,[2,{b:c}]]|a={b:{c:d}}|a={b: [1, 2]}|a=[a b, c]
a=${b.c}|a=${b}|a=x${b.c}|a=${oc.env:CONF_A}|a='${b.c}'|a="x${b.c}y"|a=\\${b.c}|a='\\${b.c}'|a=${b.${k}}|a=${x|a=${}|a=${missing}|a=${oc.decode:${oc.env:CONF_A}}|a='${oc.decode:${oc.env:CONF_A}}'|a=[${b.c},2]|a={x:${b.c}}
a=007|a=0|a=-0|a=+1|a=-1|a=1_000|a=1__0|a=_1|a=1e3|a=1E-3|a=.5|a=5.|a=-.5|a=inf|a=-inf|a=INF|a=nan|a=infx|a=0x10|a=1.2.3|a=1-2|a=1:2|a=yes|a=on|a=TRUE|a=True|a=tRuE|a=NULL|a=Null|a=nulls|a=None|a=~|a=~/x|a=a~|a=@x|a=a@b
a=/x/y|a=./x|a=../x|a=x.y|a=x-y|a=x+y|a=x%y|a=x*y|a=x?y|a=x!y|a=x&y|a=x#y|a=#x|a=x;y|a=x<y|a=x>y|a=x^y|a=x`y|a=é|a='é'|a=x|a=$x|a=x$|a=(x)|a=x(y|a=[|a=]|a={|a=}|a={x}|a={x:}|a=[1,]|a=[,1]|a={a:1,}|a={a:1,a:2}|a={1:2}
a={true:1}|a={null:1}|a={1.5:x}|a={a b:1}|a={'a':1}|a={a.b:1}|a={a-b:1}|a={a:b:c}|a='|a="|a=''|a=""|a='it\\'s'|a="it's"|a='a"b'|a="a\\"b"|a='a\\\\'|a='a\\\\b'|a='a\\b'|a="\\\\"|a='\\''|a='a'b|a=b'a'|a='a' 'b'|a=' a '|a=a\\ |a=\\ a|a=a\\\\|a=\\\\|a=\\a|a=\\[|a=\\{x\\}|a=\\(x\\)
a=int(1.9)|a=int('3')|a=int(x)|a=int(true)|a=int([1.5,'2'])|a=int({x:1.5})|a=float(1)|a=float('1e3')|a=float(true)|a=float(inf)|a=str(1)|a=str(1.0)|a=str(true)|a=str(null)|a=str([1,true])|a=str('x y')|a=str({x:1})|a=bool(1)|a=bool(0)|a=bool(true)
a=bool('false')|a=bool(FALSE)|a=bool(x)|a=bool(0.0)|a=bool([1,0])|a=int()|a=int(1,2)|a=int(value=3.5)|a=int(x=3)|a=float(1_0)|a=str(1_0)|a=str(1e3)|a=int(1e3)|a=int( 5 )|a=int (5)|a=foo(1)|a=foo()|a=int(int(1.5))|a=str(int(1.5))|a=[int(1.5),str(2)]|a={x:int(1.5)}|a=int(null)
a=sort([3,1,2])|a=sort([b,a],reverse=true)|a=sort(3,1)|a=choice(1,2)|a=range(1,3)|a=interval(0,1)|a=glob(*)|a=shuffle([1])|a=tag(x,choice(1,2))|a=sort([])|a=sort(1)|a=sort([1,a])|a=x(|a=int(1|a=int(1))|a=int(-1)|a=float(-.5)|a=str(-1)|a=str('')|a=int('')|a=int(' 5 ')|a=int('1_0')|a=int('0x1')
b.c=5|b.d.e=6|b.d={e:7}|b.d={f:7}|b.d=5|b.d=null|b.d=[1]|b={c:9}|b={x:1}|b=5|b.x=1|b.d.x=1|b.c.x=1|x=1|x.y=1|b.l=[9]|b.l.0=9|b.l.5=9|b.l.x=9|b.l={x:1}|b.l=5|b.l=null|b.l[0]=9|a.0=1|n=5|n={x:1}|n.x=5|m=5|m.x=5|m={x:1}|s={x:1}|s=[1]|f=2|y=1|i=5|i.x=5|z={x:1}|z.x=1|q=[1]|1=x|1=2
+x=1|+x.y=1|+x.y.z={a:1}|+a=2|+b.x=1|+b.c=5|+b={x:1}|+b={c:5}|+b.d={f:1}|+b.d.f=1|+n=5|+m=5|+b.l=[4]|+b.l=5|+b.l.3=4|+b.c.x=1|+s.x=1|+n.x=1|+m.x=1|+z.x=1|+q.0=1|+i=5|+i.x=1|+x=|+x=null|+x=[1]|+x={}|+x={a:{b:1}}|+x=${a}|+b.d={}|+a={}|+a=[1]|+a={x:1}|+x=1,2|+x=???|+bb.i=3
++x=1|++x.y=1|++a=2|++b.c=5|++b={x:1}|++b.d=5|++b.l=[7]|++n=1|++m=1|++b.c.x=1|++b.l.0=7|++b.l.9=7|++x={a:1}|++b.d={e:1,g:2}|++i=2|+++x=1
~a|~b.c|~b.d|~b|~x|~b.x|~a=1|~a=2|~a=1.0|~a=true|~b.c=2|~b.d={e:3}|~b.l=[1,2,3]|~b.l=[1,2]|~n|~n=null|~m|~b.l.0|~s=text|~s='text'|~i|~i=1|~z|~q|~a=|~a=null|~+a|~b.d.e=3|~b.d.e.f
=1|a|+x|+|~|++|a.=1|.a=1|a..b=1|a b=1| a=1|a =1|a-b=1|-a=1|+a-b=1|+a_b=1|+$x=1|+x$y=1|+1x=1|+1=1|+x.1=1|+x.01=1|a/b=1|+a/b=1|a@b=1|+a@b=1|a:b=1|+é=1|+a!=1|+x.y-z=1|+x.$y=1|+_x=1|+x y=1|"a"=1|a[0]=1|+x.=1""".replace("\n", "|").replace("\\|", "|")

CHAINS = [
    ["a=2", "a=3"], ["+x=1", "x=2"], ["+x=1", "+x=2"], ["~a", "+a=5"], ["~b", "b=5"], ["+x={y:1}", "x.y=2"], ["+x={y:1}", "x.z=2"], ["+x={y:1}", "+x.z=2", "~x.y"],
    ["b.d=5", "b.d.e=1"], ["+b.l.0=5"], ["a=${b.c}", "b.c=9"], ["+x=[1]", "x=[2,3]"], ["++x.y=1", "++x.z=2", "~x"], ["b={c:1}", "b.c=2"], ["m={x:1}", "m.x=2"], ["m={x:1}", "+m.y=2"],
    ["+x.y.z=1", "x.y={z:2}"], ["n={x:1}", "n.x=3"], ["a=[1,2]", "a.0=5"], ["a=[1,2]", "a={x:1}"], ["a={x:1}", "a=[1]"], ["z={}", "q=[]"], ["b.l=[{x:1}]", "b.l.0.x=2"], ["b.l=[{x:1}]", "b.l.0={x:3}"],
    ["b.l=[{x:1}]", "b.l.0={y:3}"], ["+b.l=[{x:1}]", "+b.l.0.y=3"],
]


def quoted(text):
    return "'" + text.replace("'", "''") + "'"


def interpolation_texts():
    return [t for line in INTERPOLATIONS.split("\n") for t in line.split(" ")] + [
        "${ b }", "${b }", "${ b}", "${oc.env: CONF_A }", "${oc.env:CONF_NONE, 8 }", "${oc.env:CONF_NONE, a b }", "x ${b} y", "${oc.env :CONF_A}", "${oc.select: c.d , 5}", "${oc.decode: ' 5 ' }", "${now:%Y }", "${oc.env:CONF_NONE,a  b}",
        "${oc.create:{ x : 1 , y : [ 2 , 3 ] }}", "${oc.decode:'{ a : 1 }'}", "${oc.decode:'[ 1 , 2 ]'}", "${c. d}", "${c .d}", "${oc. env:CONF_A}", "${oc.decode:'x: y'}", "${oc.env:CONF_NONE,\t}", "${\tb}",
    ]


def hand_picked():
    all_cases = [(f"a: {word}\n", None) for word in scalar_words()]
    all_cases += [(f"a: [{word}]\n", None) for word in scalar_words()]
    all_cases += [(f"{word}: 1\n", None) for word in scalar_words() if not word.startswith("!")]
    all_cases += [(text, None) for text in DOCUMENTS + INTERPOLATION_DOCUMENTS]
    all_cases += [(f"a: {quoted(text)}{CONTEXT.replace(chr(10) + 's1', chr(10) + '#s1').replace(chr(10) + 's2', chr(10) + '#s2').replace(chr(10) + 'r1', chr(10) + '#r1')}", None) for text in interpolation_texts()]
    all_cases += [(f"w: {{b: in, c: {{d: inner}}, a: {quoted(text)}}}{CONTEXT.replace(chr(10) + 's1', chr(10) + '#s1').replace(chr(10) + 's2', chr(10) + '#s2').replace(chr(10) + 'r1', chr(10) + '#r1')}", None) for text in interpolation_texts() if text.startswith("${.") or ":." in text]
    all_cases += [("a: 1\nb: '${s1}'\n" + CONTEXT[CONTEXT.index("s1"):], None)]
    all_cases += [(BASE, [text]) for text in OVERRIDES.split("|")]
    all_cases += [(BASE, chain) for chain in CHAINS]
    return all_cases


def generated(rng, n):
    return [rng.choice(GENERATORS)(rng) for _ in range(n)]


def random_value(rng, depth=0):
    kind = rng.randint(0, 9)
    if depth < 3 and kind == 0:
        return "[" + ", ".join(random_value(rng, depth + 1) for _ in range(rng.randint(0, 3))) + "]"
    if depth < 3 and kind == 1:
        return "{" + ", ".join(f"{rng.choice('abcdef')}{i}: {random_value(rng, depth + 1)}" for i in range(rng.randint(0, 3))) + "}"
    return rng.choice(["1", "x", "true", "null", "1.5", "'q r'", "1e3", "\"z\"", "???" if depth == 0 else "5"])


def generated_chain(rng):
    keys = ["a", "b", "b.c", "b.d", "b.d.e", "b.l", "b.l.0", "n", "m", "x", "x.y", "s", "z", "q", "i"]
    return (BASE, [rng.choice(["", "", "+", "++", "~"]) + rng.choice(keys) + "=" + rng.choice(["1", "[1,2]", "{c:5}", "{e:1,w:2}", "null", "x", "${a}", "{}", "[]", "???"]) for _ in range(rng.randint(1, 4))])


def generated_document(rng):
    return ("\n".join(f"k{i}: {random_value(rng)}" for i in range(rng.randint(1, 4))) + "\n", None)


GENERATORS = [generated_chain, generated_document]
