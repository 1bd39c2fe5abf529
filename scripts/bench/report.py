"""Figures of the regular benchmark as JSON, as a table for people, and as rows of docs/benchmarks.md."""

import dataclasses
import re
import statistics

DOCS_BEGIN, DOCS_END = "<!-- rows of scripts/bench/bench.sh -->", "<!-- end of the rows of scripts/bench/bench.sh -->"
DOCS_HEAD = ("| name | what | ours, p10 to p90 | peer, p10 to p90 | ours / peer | CPU time, ours / peer | gate, aim "
             "| measured |\n|---|---|---|---|---|---|---|---|\n")


def head(row):
    return {"name": row.name, "what": row.what, "unit": row.unit, "gate": row.gate, "aim": row.aim,
            "more_is_better": row.more_is_better, "judged_by": row.judged_by,
            "gate_is_figure": row.gate_is_figure}


def changed(row, **values):
    return dataclasses.replace(row, **values)


def words_of(trouble):
    return str(trouble).strip()[-600:]


def spread(values):
    """Median, 10th and 90th percentile (nearest rank)."""
    ordered = sorted(values)
    last = len(ordered) - 1
    return {"median": statistics.median(ordered), "p10": ordered[round(0.1 * last)], "p90": ordered[round(0.9 * last)],
            "n": len(ordered)}


def compared(ours, peer, ratios):
    return {"ours": spread(ours), "peer": spread(peer), "ratio": spread(ratios)}


def verdict(row, judged):
    """met, missed, or watched where there is no gate. `judged`: the ratio, or what the gate is for."""
    if row.gate is None or judged is None:
        return {"verdict": "watched"}
    def reached(limit):
        return judged >= limit if row.more_is_better else judged <= limit
    return {"verdict": "met" if reached(row.gate) else "missed", "aim_reached": row.aim is not None and reached(row.aim)}


def known(row, figures, commands):
    """From another script's medians: `ddp-run` is ours, `torchrun` the peer, which may be missing."""
    ours, peer = figures["ddp-run"], figures.get("torchrun")
    ratio = ours["median"] / peer["median"] if peer else None
    result = {"ours": ours, "peer": peer, "ratio": {"median": ratio, "p10": ratio, "p90": ratio} if peer else None}
    return {"commands": commands, row.judged_by: result, **verdict(row, ratio)}


def number(value):
    return f"{value:.0f}" if abs(value) >= 1000 else f"{value:.3g}"


def spread_text(figures, unit=""):
    if not figures:
        return "-"
    return f"{number(figures['median'])} [{number(figures['p10'])} - {number(figures['p90'])}]{' ' + unit if unit else ''}"


def ratio_text(result, clock):
    ratio = (result.get(clock) or {}).get("ratio")
    return f"{ratio['median']:.2f} [{ratio['p10']:.2f} - {ratio['p90']:.2f}]" if ratio else "-"


def gate_text(result):
    sign = ">=" if result["more_is_better"] else "<="
    unit = " " + result["unit"] if result["gate_is_figure"] else ""
    limits = " -> ".join(f"{limit:.2f}{unit}" for limit in (result["gate"], result["aim"]) if limit is not None)
    words = result["verdict"] + (", aim reached" if result.get("aim_reached") else "")
    return f"{sign} {limits}: {words}" if limits else words


def cells(result):
    if result["verdict"] in ("skipped", "failed"):
        return ["-", "-", "-", "-", f"{result['verdict']}: {result['reason'].splitlines()[0]}"]
    shown = result.get("wall") or result[result["judged_by"]]
    return [spread_text(shown["ours"], result["unit"]), spread_text(shown["peer"], result["unit"] if shown["peer"] else ""),
            ratio_text(result, "wall"), ratio_text(result, "processor"), gate_text(result)]


def table(machine, results):
    rows = [["", "ours", "peer", "ours / peer", "CPU time", "gate -> aim"],
            *([result["name"], *cells(result)] for result in results)]
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths)).rstrip() for row in rows]
    return "\n".join([*lines, "", "medians [p10 - p90]; gates are judged by CPU time where ours runs on one thread",
                      "{date}, commit {commit}, {cpu}, {cores} cores, load {load}, torch {torch}, {command}".format(**machine)])


def docs_row(machine, result):
    measured = f"{machine['date']}, {machine['commit']}, {machine['cpu']}, {machine['cores']} cores, load {result['load']}"
    return "| " + " | ".join([result["name"], result["what"], *cells(result), measured]) + " |"


def write_docs(path, machine, results):
    """Replaces the rows of these names between the marks, and adds those that are new."""
    text = path.read_text()
    begin, end = text.index(DOCS_BEGIN) + len(DOCS_BEGIN) + 1, text.index(DOCS_END)
    rows = dict(re.findall(r"^(?:\| (\w+) \|)(.*)$", text[begin:end], re.M))
    rows.pop("name", None)
    lines = {name: f"| {name} |{rest}" for name, rest in rows.items()}
    lines |= {result["name"]: docs_row(machine, result) for result in results if result["verdict"] != "failed"}
    path.write_text(text[:begin] + DOCS_HEAD + "".join(line + "\n" for line in lines.values()) + text[end:])
