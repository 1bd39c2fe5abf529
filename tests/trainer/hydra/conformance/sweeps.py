"""Sweeps: what --multirun makes of a command line, job by job, beside Hydra's basic sweeper."""

import groups
from accepted_differences import SWEEP_REASONS

COMMANDS = """k=1,2
k=1,2 opt.lr=3,4
opt.lr=3,4 k=1,2
k=1,2 k=5,6
k=1 opt.lr=2
k=range(1,4)
k=range(4)
k=range(4,1,-1)
k=range(0,1,0.25)
k=range(1,10,step=4)
k=range(start=1,stop=3)
k=range(0)
k=range(1,3.5)
k=range(1,4,0)
k=range(a,3)
k=range(1,2,3,4)
k=choice(1,2,x)
k=choice(a)
k=choice()
k=choice('a b',"c,d",[1,2],{a:1})
k=choice(choice(1,2))
k=choice(1,choice(2,3))
k='a b','c,d'
k=[1,2],[3]
k={a:1},{b:2}
k=null,true,1.5,1e-3,1_000
k=x y,z
k=a\\,b,c
k=,
k=1,
k=,1
k=1,,2
db=mysql,pg
+opt=sgd,adam db=pg
db=glob(*)
db=glob(m*)
db=glob([m*,p*])
db=glob(*,exclude=[b*,d*,e*,f*,g*,i*,l*,m*,n*,o*,s*,t*,w*,a*])
db=glob(x*)
k=glob(*)
k=sort(3,1,2)
k=sort(3,1,2,reverse=true)
k=sort(range(1,4),reverse=true)
k=sort(range(4,1,-1))
k=sort(choice(b,a))
k=sort([3,1])
k=sort(a,1)
k=sort()
k=int(1.5,2.5)
k=int(range(1.5,4.5))
k=float(1,2)
k=float(range(1,3))
k=str(1,2)
k=str(range(1,3))
k=bool(0,1)
k=bool(choice(true,false))
k=int(choice(1.5,'2'))
k=int(choice(x,1))
k=tag(a,b,choice(1,2))
k=tag(choice(1,2))
k=tag(1,choice(1,2))
k=tag(a,1)
k=tag()
k=interval(0,1)
k=interval(1)
+new=1,2
++k=1,2
~k
~k=1 opt.lr=1,2
nope=1,2
hydra.run.dir=a,b
hydra.sweep.dir=x k=1,2
hydra.verbose=true k=1,2
k=${opt.lr},2
k='${opt.lr}',2
k=a=b
k=choice(a
k=foo(1,2)
k=1,2 db.port=range(1,3) opt.lr=choice(x,y)
db@db=pg,mysql
opt=sgd,nothere
k=true,false
k=007,08
k=-1,+1
k=inf,nan
k=1.0,2.50
k=str(.5)
k=str([1,2])
k=int(1.9) opt.lr=1,2
k=str(1e3) +new='a b'
~k=1 k=1,2""".split("\n")

FILES = groups.tree("defaults: [db: mysql, opt: sgd, _self_]\nk: 1\n")
PARAMS = groups.tree("defaults: [db: mysql, opt: sgd, _self_]\nk: 1\nhydra: {sweeper: {params: {k: '5,6', opt.lr: 'choice(1,2)'}}}\n")


def hand_picked():
    cases = [(FILES, command.replace("x y,z", "x\0y,z").split(" ")) for command in COMMANDS if "'a b'" not in command]
    cases = [(files, [word.replace("\0", " ") for word in words]) for files, words in cases]
    cases += [(FILES, [command]) for command in COMMANDS if "'a b'" in command]
    cases += [(FILES, [command]) for command in SWEEP_REASONS]
    cases += [(PARAMS, []), (PARAMS, ["k=7"]), (PARAMS, ["opt.lr=3", "db=pg,mysql"])]
    return cases


SWEPT = ["k", "k", "k", "opt.lr", "opt.lr", "db", "opt", "db.port", "+new", "+new.x", "++k", "++n.m", "nope", "~k", "+db", "hydra.job.name"]
VALUES = """1 2 3 -1 +1 0 1.5 .5 1e-3 1_000 007 true False null nan inf a b x-y x/y a:b a@b '' 'a' "b" 'a,b' 'a b' a\\,b [1,2] [] {a:1} {a:1,b:[2]} ${opt.lr} x${k} ???""".split(" ")
CHOICES = ["mysql", "pg", "base", "deep", "sgd", "adam", "nothere", "[mysql,pg]", "null", "db/mysql"]
GLOBS = ["glob(*)", "glob(m*)", "glob([m*,p*])", "glob(*,exclude=[b*,d*,e*,f*,g*,i*,l*,m*,n*,o*,s*,t*,w*,a*])"]
NUMBERS = ["0", "1", "2", "3", "-2", "0.5", "1.25", "3.0"]


def random_range(random):
    arguments = [random.choice(NUMBERS) for _ in range(random.choice([1, 1, 2, 2, 2, 3, 3]))]
    names = random.choice([[], [], [], ["start", "stop", "step"], ["stop"], ["", "", "step"], ["x"]])
    return "range(" + random.choice([",", ",", ", "]).join(f"{name}={value}" if name else value for name, value in zip(names + [""] * 3, arguments)) + ")"


def random_list(random, depth):
    return ",".join(random.choice(VALUES) if depth == 0 or random.random() < 0.85 else random_sweep(random, depth - 1) for _ in range(random.choice([0, 1, 2, 2, 3])))


def random_sweep(random, depth=2):
    kind = random.random()
    if kind < 0.3:
        return random_list(random, 0)
    if kind < 0.5:
        return random_range(random)
    if kind < 0.65 or depth == 0:
        return "choice(" + random_list(random, depth and depth - 1) + ")"
    inner = random.choice([random_list(random, 0), random_sweep(random, depth - 1), random_sweep(random, depth - 1)])
    # A sort or cast of a range acts on its values here, on its bounds in Hydra: they differ where the step does not divide them.
    on_values = ["sort", "sort", "int", "float"] if "range(" not in inner else []
    name = random.choice(on_values + ["str", "bool", "tag", "interval", "choice", "foo"])
    if name == "tag":
        inner = random.choice(["", "a,", "a,b,", "1,"]) + inner
    if name == "sort" and random.random() < 0.4:
        inner += ",reverse=" + random.choice(["true", "false", "1"])
    return f"{name}({inner})"


def generated(random):
    words = []
    for _ in range(random.choice([1, 1, 1, 2, 2, 3])):
        key = random.choice(SWEPT)
        values = random_sweep(random)
        if key in ("db", "opt", "+db") and random.random() < 0.9:
            values = random.choice([random.choice(GLOBS), ",".join(random.choice(CHOICES) for _ in range(2))])
        words.append(key if key == "~k" else f"{key}={values}")
    return (random.choice([FILES, FILES, FILES, PARAMS]), words)


def jobs(overrides, compose):
    """As BasicSweeper.sweep() and BasicLauncher put them together."""
    from hydra._internal.core_plugins.basic_sweeper import BasicSweeper
    from hydra.core.global_hydra import GlobalHydra
    from hydra.core.override_parser.overrides_parser import OverridesParser
    from hydra.types import RunMode
    from omegaconf import OmegaConf

    loader = GlobalHydra.instance().config_loader()
    master = loader.load_configuration(config_name="cfg", overrides=overrides, run_mode=RunMode.MULTIRUN)
    params = OmegaConf.to_container(master.hydra.sweeper, resolve=False)["params"] or {}
    task = [f"{k}={v}" for k, v in params.items()] + OmegaConf.to_container(master.hydra.overrides.task, resolve=False)
    parsed = OverridesParser.create(config_loader=loader).parse_overrides(task)
    swept = BasicSweeper.split_arguments(parsed, None)[0]
    if not swept:
        raise ValueError("a glob that matches nothing: Hydra runs no job and says nothing, trainer refuses it")
    return [compose(list(master.hydra.overrides.hydra) + list(job)) for job in swept]
