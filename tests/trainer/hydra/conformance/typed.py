"""Typed merging: the schema's keys beside an OmegaConf structured config of the same types.

trainer goes further in three ways, on purpose: whole floats and 1e3 are ints, null is "off" or "not given" for some keys,
and numbers have ranges; a key that is ??? must be given, also where it has a default. `allowed` says where the two may differ.
"""

from dataclasses import dataclass, field
from typing import List, Optional

FIELDS = {
    "trainer_config.log_every_steps": "int",
    "trainer_config.seed": "int",
    "trainer_config.max_steps": "optional int",
    "optimizer_config.learning_rate": "float",
    "distributed_config.timeout_s": "float",
    "gpt_config.tie_weights": "bool",
    "distributed_config.static_graph": "bool",
    "trainer_config.snapshot_path": "str",
    "hydra.job.name": "str",
}

VALUES = """1 5 "5" '5' " 5 " 5.0 3.7 1e3 "1e3" "5.0" true false yes no on off y n Y "yes" "true" "False" "on" "1" "0" 0 2 1.0 0.0 null ~ text "" ''
1_000 "1_000" 0x10 "0x10" 010 "010" 1:30 .5 "-5" "+5" 5. "5." "inf" "nan" .inf .nan 1e400 abc "a b" [1] [] {} {a: 1} 2026-01-01 99999999999999999999
"1__0" "_1" 1e-3 "1e-3" "TRUE" "tRuE" "None" "null" 1.50 12345678901234567890.0 "\\n5" 0.1 -0.0 "é" "~" "${oc.env:CONF_A}" "${oc.decode:true}" ???""".replace("\n", " ")


@dataclass
class Typed:
    int_field: int = 1
    optional_int: Optional[int] = None
    float_field: float = 1.0
    bool_field: bool = False
    str_field: str = "x"


NAMES = {"int": "int_field", "optional int": "optional_int", "float": "float_field", "bool": "bool_field", "str": "str_field"}


def words():
    found, rest = [], VALUES.split(" ")
    while rest:
        word = rest.pop(0)
        closing = {"[": "]", "{": "}", '"': '"', "'": "'"}.get(word[:1])
        while closing and (len(word) < 2 or not word.endswith(closing)):
            word += " " + rest.pop(0)
        found.append(word)
    return found


def cases():
    return [(key, kind, word) for key, kind in FIELDS.items() for word in words() if not key.startswith("hydra.")]


def expected(kind, word):
    from omegaconf import OmegaConf

    try:
        merged = OmegaConf.merge(OmegaConf.structured(Typed), OmegaConf.create(f"{NAMES[kind]}: {word}\n"))
        return ("ok", OmegaConf.to_container(merged, resolve=True)[NAMES[kind]])
    except Exception as error:
        return ("error", str(error)[:150])


def allowed(kind, word, want, got, message):
    if want[0] == "ok" and got[0] == "error":
        return "out of range" in message or "is empty" in message or word == "9" * 20
    if word == "???":
        return got == ("ok", "???")
    if want[0] == "error" and got[0] == "ok":
        whole = kind.endswith("int") and isinstance(got[1], int) and not isinstance(got[1], bool)
        return whole and word not in ("true", "false", "yes", "no", "on", "off")
    return False
