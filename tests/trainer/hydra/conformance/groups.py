"""Cases with several files: ({path: text}, overrides). The primary file is cfg.yaml.

Defaults lists, config groups, packages, optional, override, interpolated choices, deletions, search paths.
"""

FILES = {
    "db/mysql.yaml": "driver: mysql\nport: 3306\n",
    "db/pg.yaml": "driver: pg\nuser: ${oc.env:CONF_A}\n",
    "db/base.yaml": "common: 1\nport: 1\n",
    "db/deep.yaml": "defaults: [base, _self_]\ndriver: deep\n",
    "db/first.yaml": "defaults: [_self_, base]\ndriver: first\nport: 9\n",
    "db/nested.yaml": "defaults: [engine: inno]\ndriver: nested\n",
    "db/overriding.yaml": "defaults: [engine: inno, override /opt: sgd]\ndriver: o\n",
    "db/absolute.yaml": "defaults: [/opt: sgd]\ndriver: abs\n",
    "db/list.yaml": "[1, 2]\n",
    "db/empty.yaml": "",
    "db/text.yaml": "word\n",
    "db/number.yaml": "5\n",
    "db/globally.yaml": "# @package _global_\nport: 7\ndb: {driver: global}\n",
    "db/elsewhere.yaml": "# @package other.place\nport: 8\n",
    "db/own.yaml": "# @package _group_\nport: 8\n",
    "db/spaced.yaml": "\n   #   @package    far  \n# text\nport: 8\n",
    "db/late.yaml": "# text\n# @package far\nport: 8\n",
    "db/bad.yaml": "# @package a b\nport: 8\n",
    "db/missing.yaml": "port: ???\n",
    "db/broken.yaml": "port: [\n",
    "db/dup.yaml": "port: 1\nport: 2\n",
    "db/self2.yaml": "defaults: [_self_, base, _self_]\nx: 1\n",
    "db/wrong.yaml": "defaults: 5\n",
    "db/interp.yaml": "defaults: [engine: '${opt}']\nx: 1\n",
    "db/engine/inno.yaml": "fast: true\n",
    "db/engine/isam.yaml": "fast: false\nold: yes\n",
    "db/engine/sgd.yaml": "engine_sgd: 1\n",
    "db/engine/adam.yaml": "engine_adam: 1\n",
    "opt/sgd.yaml": "lr: 0.1\nname: sgd\n",
    "opt/adam.yaml": "lr: 1e-3\nname: adam\nbetas: [0.9, 0.99]\n",
    "opt/by_ref.yaml": "lr: ${base_lr}\n",
    "db_opt/mysql_sgd.yaml": "special: mysql and sgd\n",
    "db_opt/pg_sgd.yaml": "special: pg and sgd\n",
    "base.yaml": "base_lr: 0.5\nshared: {x: 1, y: [1, 2]}\n",
    "base2.yaml": "shared: {x: 2, z: 3}\n",
    "chain.yaml": "defaults: [base, base2, _self_]\nchain: true\n",
    "circle.yaml": "defaults: [circle]\n",
    "exp/one.yaml": "# @package _global_\ndefaults: [override /db: pg, override /opt: adam]\nshared: {x: 100}\nepochs: 3\n",
    "exp/two.yaml": "# @package _global_\ndefaults: [/db@second: pg]\nepochs: 4\n",
    "schema/a b.yaml": "x: 1\n",
    "other/db/extra.yaml": "driver: extra\n",
    "hydra/job_logging/custom.yaml": "root: {level: WARN}\n",
}

BODIES = ["", "k: 1\n", "db: {port: 5}\n", "shared: {x: 0, w: 1}\n", "db: {driver: mine, n: '${opt.lr}'}\nopt: {lr: 2.0}\n"]

LISTS = """db: mysql
db: pg|opt: sgd
_self_|db: mysql
db: mysql|_self_
db: mysql|opt: adam|_self_
base|db: mysql
base|base2|_self_
chain
/base
db/mysql
db/mysql@other
db/mysql@_global_
db/mysql@_here_
db@other: mysql
db@_global_: mysql
db@_here_: mysql
db@_group_: mysql
db@src: mysql|db@dst: pg
db@_group_.sub: mysql
db: deep
db: first
db: nested
db: overriding|opt: adam
opt: adam|db: overriding
db: overriding
db: absolute
db: list
db: empty
db: text
db: number
db: globally
db: elsewhere
db@mine: elsewhere
db: own
db: spaced
db: late
db: bad
db: missing
db: broken
db: dup
db: self2
db: wrong
db: interp|opt: sgd
db: nothere
db: ???
db: null
db:
optional db: nothere
optional db: mysql
optional other: x
nogroup: x
nofile
db: [mysql, pg]
db: [pg, mysql]
db: []
db: [mysql, nothere]
optional db: [mysql, nothere]
db: 5
db: true
db: {a: 1}
5
null
[]
{}
{db: mysql, opt: sgd}
circle
db: mysql|db: pg
db: mysql|db: mysql
db: mysql|override db: pg
db: pg|opt: sgd|override db: mysql|override opt: adam
override db: pg
override db: pg|db: mysql
db: mysql|opt: sgd|db_opt: ${db}_${opt}
db: mysql|opt: adam|optional db_opt: ${db}_${opt}
db: mysql|opt: adam|db_opt: ${db}_${opt}
db_opt: ${db}_${opt}|db: pg|opt: sgd
db: ${nothing}
opt: sgd|db/engine: ${opt}
exp: one|db: mysql|opt: sgd
db: mysql|opt: sgd|exp: one
db: mysql|opt: sgd|_self_|exp: one
db: mysql|exp: two
opt: by_ref|base
_self_|_self_
_self_@x
db: mysql|override hydra/job_logging: disabled
db: mysql|override hydra/job_logging: custom
override hydra/launcher: nothere
hydra/job_logging: disabled
override hydra/hydra_logging: none|_self_
schema: a b
schema/a b
optional nofile
override base
db/engine: inno
db/engine@e: isam
/db/engine: inno
base@pkg
base@pkg.sub
base@a:b
db: mysql.yaml
base.yaml
db@:  mysql
db@a@b: mysql
./base
db/../base
db@db.inner: mysql|db: pg
db@a: mysql|db@a: mysql
db@a: mysql|opt@a: sgd""".split("\n")

GROUP_OVERRIDES = """db=pg|db=mysql|db=nothere|+db=pg|+db=nothere|++db=pg|~db|~db=mysql|~db=pg|db=null|db=[mysql,pg]|+db=[mysql,pg]|db=5|db={port:5}|+db={new:5}|~db={}|db=|db=???|+db@x=pg|db@x=pg|~db@x|+db@_global_=pg|+db@_here_=pg|db@src=mysql
opt=adam|opt=sgd|+opt=adam|~opt|db/engine=isam|+db/engine=isam|~db/engine|+db/engine@e=inno|db.port=7|+db.new=1|~db.port|db.driver=x|opt.lr=3|k=2|+exp=one|+exp=two|exp=one|+base=x|+nogroup=x|nogroup=x|+db@a.b=pg
hydra/job_logging=disabled|hydra/job_logging=nothere|+hydra/job_logging=none|hydra/launcher=basic|hydra.searchpath=[other]|hydra.searchpath=[file://other]|hydra.searchpath=other|+hydra.searchpath=[other]|hydra.run.dir=x|hydra.verbose=true|hydra.nope=1|+hydra.nope=1|hydra.job.name=x|hydra.job.env_set={A:b}|+hydra.job.env_set.A=b|~hydra|hydra.output_subdir=null
+db@=pg|db@=pg|+@x=pg|@x=y|+db/=x|+db//x=y|/db=pg|+db@db=pg|shared.x=9|+shared.q=1|shared={x:5}|~shared|+db='pg'|db="mysql"|db=${opt}|+opt@db.o=sgd|+db=deep|+db=first|db=nested|db=overriding|db=globally|db=elsewhere|+db@a:b=pg""".replace("\n", "|").split("|")


def primary(items, body):
    if items is None:
        return body
    lines = "".join(f"- {item}\n" for item in items.split("|"))
    return f"defaults:\n{lines}{body}"


def tree(text):
    return {**FILES, "cfg.yaml": text}


def hand_picked():
    cases = [(tree(primary(items, body)), []) for items in LISTS for body in (BODIES[0], BODIES[4])]
    for items in (None, "db: mysql|opt: sgd", "db@src: mysql|db@x: pg|_self_"):
        cases += [(tree(primary(items, BODIES[1])), [o]) for o in GROUP_OVERRIDES]
    cases += [(tree("defaults: " + text + "\nk: 1\n"), []) for text in ("null", "5", "x", "{}", "{db: mysql}", "[]", "???", "[db: mysql, opt: sgd]")]
    cases += [(tree("hydra: {searchpath: [file://other]}\n" + "defaults: [db: extra]\n"), []), (tree("hydra: {run: {dir: x}}\nk: 1\n"), []),
              (tree("hydra: {nope: 1}\nk: 1\n"), []), (tree("hydra: {run: {nope: 1}}\n"), []), (tree("hydra: 5\n"), []), (tree("hydra: null\n"), []),
              (tree("hydra: {run: null}\n"), []), (tree("hydra: {job: {name: a, chdir: true}}\n"), []), (tree("hydra: {verbose: [a, b]}\n"), [])]
    return cases


def generated(rng, count):
    cases = []
    for _ in range(count):
        items = "|".join(rng.choice(rng.choice(LISTS).split("|")) for _ in range(rng.randint(0, 3))) or None
        cases.append((tree(primary(items, rng.choice(BODIES))), [rng.choice(GROUP_OVERRIDES) for _ in range(rng.randint(0, 2))]))
    return cases
