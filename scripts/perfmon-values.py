#!/usr/bin/env python3
"""perfmon-values.py DIR SOURCE > tests/formulas/perfmon.tsv

What perfmon's formulas in DIR come to on made counts, by Python's own arithmetic: what tests/formulas.rs holds the built-in tables to.
Only values and names leave this script. Rows `count` name what formulas take, a row `model` begins a table, and every other row is a
metric and its value for each set of counts (`-`: divided by nothing).
"""

import csv
import json
import pathlib
import re
import sys

SETS = 2
SHEET = "E-core_TMA_Metrics.csv"
LARGE = {
    "haswell": "HSW", "broadwell": "BDW", "skylake": "SKL", "icelake": "ICL", "tigerlake": "TGL", "rocketlake": "RKL",
    "haswellx": "HSX", "broadwellx": "BDX", "skylakex": "SKX", "cascadelakex": "CLX", "icelakex": "ICX",
    "sapphirerapids": "SPR", "emeraldrapids": "EMR", "graniterapids": "GNR", "sierraforest": "SRF", "grandridge": "GRR",
    "clearwaterforest": "CWF",
}
HYBRID = {"alderlake": ("ADL", "goldencove"), "meteorlake": ("MTL", "redwoodcove"), "lunarlake": ("LNL", "lioncove"), "arrowlake": ("ARL", "lioncove")}
SMALL = {
    "alderlake/cpu_atom": ("ADL", "alderlake_gracemont_core", "GRT"),
    "meteorlake/cpu_atom": ("MTL", "meteorlake_crestmont_core", "CMT"),
    "lunarlake/cpu_atom": ("LNL", "lunarlake_skymont_core", "LNL-SKT"),
    "arrowlake/cpu_atom": ("ARL", "arrowlake_skymont_core", "ARL-SKT"),
    "arrowlake/cpu_lowpower": ("ARL", "arrowlake_crestmont_core", "CMT"),
}
taken = set()


def count(name, number):
    """The number that a name counts in a set: FNV-1a of both, as tests/formulas.rs has it."""
    taken.add(name)
    if name.upper() == "HYPERTHREADING_ON":
        return float(number % 2)
    state = 0xCBF29CE484222325 ^ (number * 0x9E3779B97F4A7C15 & 0xFFFFFFFFFFFFFFFF)
    for byte in name.upper().encode():
        state = (state ^ byte) * 0x100000001B3 & 0xFFFFFFFFFFFFFFFF
    return float((state >> 40) + 1)


def value(formula, names):
    """A formula's value, or None if it divides by nothing."""
    spelled = re.sub(r"(\w+)\[0\]", r"\1", formula).replace("> =", ">=").replace("< =", "<=")
    try:
        return eval(spelled, {"__builtins__": {}, "min": min, "max": max}, names)
    except ZeroDivisionError:
        return None


def large(path):
    """Metrics of a file with the values of each set."""
    for metric in json.loads(path.read_text(encoding="utf-8", errors="replace"))["Metrics"]:
        values = []
        for number in range(SETS):
            names = {event["Alias"]: count(event["Name"], number) for event in metric["Events"]}
            for constant in metric["Constants"]:
                literal = re.fullmatch(r"[0-9.]+", constant["Name"])
                names[constant["Alias"]] = float(constant["Name"]) if literal else count(constant["Name"], number)
            for free in ("DURATIONTIMEINSECONDS", "DURATIONTIMEINMILLISECONDS"):
                if re.search(free, metric["Formula"], re.I):
                    names[free] = names[free.lower()] = count(free, number)
            values.append(value(metric["Formula"], names))
        yield metric["MetricName"], values


def small(rows, events, column):
    """Metrics of a column of the sheet with the values of each set."""
    head = next(at for at, row in enumerate(rows) if row[0] == "Key")
    place = rows[head].index(column)
    meant = {"TSC": "SYSTEM_TSC_FREQ", "DurationTimeInMilliSeconds": "DURATIONTIMEINMILLISECONDS"}
    cells = {}
    for row in rows[head + 1:]:
        name = next((cell for cell in row[1:4] if cell), "")
        if name and row[place] and row[place] != "#NA":
            cells[name] = (row[0], row[place])

    def known(formula, number):
        """A formula's value; KeyError if the core has not an event of it."""
        def replaced(word):
            word = word.group()
            if word in cells:
                return repr(known(cells[word][1], number))
            if word in ("min", "max") or re.fullmatch(r"[0-9.]+", word):
                return word
            if word not in meant and re.split(r"[:@]", word)[0].upper() not in events:
                raise KeyError(word)
            return repr(count(meant.get(word, word), number))
        return value(re.sub(r"[#%A-Za-z0-9_.:@=]+", replaced, formula), {})

    for name, (key, formula) in cells.items():
        is_node = key.startswith(("FE", "BAD", "BE", "RET"))
        # Parts of formulas that are metrics of large cores.
        is_count = name in ("#CLKS", "#SLOTS")
        if not (is_node or is_count or key.startswith("Info")):
            continue
        called = name if is_node else ("Info_Thread" if is_count else key.replace(".", "_")) + "_" + name.lstrip("#%_")
        try:
            values = [known(formula, number) for number in range(SETS)]
        except KeyError:
            continue
        yield called, [None if one is None else one * (100 if is_node else 1) for one in values]


def main():
    folder = pathlib.Path(sys.argv[1])
    tables = {name: large(folder / code / "metrics" / f"{name}_metrics.json") for name, code in LARGE.items()}
    for name, (code, core) in HYBRID.items():
        tables[f"{name}/cpu_core"] = large(folder / code / "metrics" / f"{name}_metrics_{core}_core.json")
    rows = [[cell.strip() for cell in row] for row in csv.reader((folder / SHEET).open(encoding="utf-8-sig"))]
    for name, (code, file, column) in SMALL.items():
        listed = json.loads((folder / code / "events" / f"{file}.json").read_text(encoding="utf-8", errors="replace"))
        events = {event["EventName"].upper() for event in listed["Events"]}
        tables[name] = small(rows, events, column)
    lines = []
    for model, metrics in tables.items():
        lines.append(f"model\t{model}")
        for metric, values in metrics:
            shown = ["-" if one is None else f"{one:.12g}" for one in values]
            lines.append("\t".join([metric, *shown]))
    print(f"# {sys.argv[2]}: values of its formulas on made counts, by scripts/perfmon-values.py")
    for name in sorted(taken):
        print(f"count\t{name}")
    print("\n".join(lines))


main()
