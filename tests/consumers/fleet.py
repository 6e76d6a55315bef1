"""Runs every query of docs/fleet.md with DuckDB and chDB on tables of simulated hosts, and holds the answers to what was made.

Run by `cargo xtask exports`: fleet.py PAGE FOLDER. FOLDER has `fleet`, which pmu-user/examples/fleet wrote, with truth.json. Prints a line for
each query and engine, and ends with 1 where one does not run or answers otherwise. A query without a check here is an error.
"""

import json
import math
import os
import re
import sys
import time
from pathlib import Path

import chdb.session
import duckdb

FENCE = re.compile(r"^```sql ?(duckdb|clickhouse)? ?(\w+)?\n(.*?)^```", re.MULTILINE | re.DOTALL)
BEGIN_S = 1795611600


def blocks(page):
    """The page's queries: (engine or None, name, text)."""
    return [match.groups() for match in FENCE.finditer(page.read_text())]


class DuckDB:
    """Rows by column."""

    name = "duckdb"

    def __init__(self):
        self.connection = duckdb.connect()
        self.connection.execute("SET TimeZone = 'UTC'; SET threads = 1")

    def execute(self, text):
        self.connection.execute(text)

    def rows(self, text):
        cursor = self.connection.execute(text)
        names = [column[0] for column in cursor.description]
        return [dict(zip(names, row)) for row in cursor.fetchall()]


class ClickHouse:
    """The same, of chDB."""

    name = "clickhouse"

    def __init__(self):
        self.session = chdb.session.Session()
        self.session.query("SET max_threads = 1")

    def execute(self, text):
        self.session.query(text)

    def rows(self, text):
        answer = self.session.query(text.strip().rstrip(";"), "JSONEachRow").bytes().decode()
        return [json.loads(line) for line in answer.splitlines()]


def near(found, wanted, part=1e-9):
    return math.isclose(found, wanted, rel_tol=part, abs_tol=1e-6)


def minute(row, column="time"):
    """Minutes since the tables begin."""
    at = row[column]
    if isinstance(at, str):
        at = at.split(".")[0]
        return (int(at[11:13]) - 13) * 60 + int(at[14:16])
    return (int(at.timestamp()) - BEGIN_S) // 60


def waits(rows, truth):
    first = truth["waits"]
    assert len(rows) == 10
    assert all((row["host"], row["pod"]) == (first["host"], first["pod"]) for row in rows), rows
    assert sorted(minute(row) for row in rows) == list(range(30, 40)), rows


def p99(rows, truth):
    buckets = sorted((int(bound), count) for bound, count in truth["waits_of_web_13"].items())
    below, of_all = 0, sum(count for _, count in buckets)
    for bound, count in buckets:
        below += count
        if below >= 0.99 * of_all:
            break
    assert [row["p99_ms"] for row in rows] == [bound / 1e6], (rows, bound)


def namespaces(rows, truth):
    found = {f"{row['namespace']} {row['hour']}": row["cpu_s"] for row in rows if row["namespace"]}
    wanted = truth["cpu_seconds_by_namespace_and_hour"]
    assert found.keys() == wanted.keys() and all(near(found[key], wanted[key]) for key in wanted), (found, wanted)
    assert all(near(row["cpu_s"], 0) for row in rows if not row["namespace"]), "there is room for all targets"


def noisy(rows, truth):
    assert rows[0]["host"] == truth["waits"]["host"], rows
    assert rows[0]["waits_per_cpu_second"] > 3 * rows[1]["waits_per_cpu_second"], rows


def disks(rows, truth):
    assert [(row["host"], row["device"]) for row in rows[:2]] == [(truth["slow_disk"], "nvme0n1")] * 2, rows
    assert {row["operation"] for row in rows[:2]} == {"read", "write"}
    assert rows[1]["p99_ms"] > 100 * rows[2]["p99_ms"] > 0, rows


def errors(rows, truth):
    of = {row["namespace"]: row for row in rows}
    assert {"shop", "data", "batch"} <= of.keys(), rows
    assert all(0 < row["plus_or_minus_s"] < row["blind_s"] for name, row in of.items() if name), rows


def losses(rows, truth):
    assert [(row["host"], row["reason"]) for row in rows] == [(truth["loses"], "slots_full")], rows
    assert near(rows[0]["lost"], truth["sums"]["losses"]), rows


def coverage(rows, truth):
    assert rows == [] or all(row["least"] < 0.99 for row in rows), rows


def stopped(rows, truth):
    assert [row["host"] for row in rows] == [truth["ends"]], rows
    assert minute(rows[0], "last_minute") == 49 and rows[0]["minutes"] == 50 and near(rows[0]["counted_s"], 3000)


def changes(rows, truth):
    assert rows[0]["container"] == truth["busier"], rows
    assert near(rows[0]["cores_after"] / rows[0]["cores_before"], 2, 0.1), rows[0]
    rest = [row["cores_after"] / row["cores_before"] for row in rows[1:]]
    assert all(near(ratio, 1, 0.1) for ratio in rest), rows


def missing(rows, truth):
    assert all(row["hosts"] == truth["hosts"] for row in rows), rows


def compact(rows, truth):
    wanted = duckdb.sql("SELECT count(*), sum(value) FROM 'fleet/*/hour=13/*.parquet'").fetchall()[0]
    found = duckdb.sql("SELECT count(*), sum(value) FROM 'hour.parquet'").fetchall()[0]
    assert found[0] == wanted[0] > 0 and near(found[1], wanted[1]), (found, wanted)


# What an engine is not asked.
NOT_ASKED = {"clickhouse": {"compact"}}
CHECKS = {check.__name__: check for check in
          (waits, p99, namespaces, noisy, disks, errors, losses, coverage, stopped, changes, missing,
           compact)}

SUMS = 'SELECT metric, sum(value) AS value, sum("sum") AS total FROM fleet GROUP BY metric'


def sums(engine, truth):
    """What every metric adds up to."""
    rows = {row["metric"]: row for row in engine.rows(SUMS)}
    for key, wanted in truth["sums"].items():
        metric, _, part = key.partition(".")
        found = rows[metric]["total" if part else "value"]
        assert near(found, wanted), (key, found, wanted)
    return len(truth["sums"])


def main(page, folder):
    os.chdir(folder)
    truth = json.loads(Path("truth.json").read_text())
    queries, failures = blocks(Path(page)), 0
    for engine in (DuckDB(), ClickHouse()):
        of_engine = [(name, text) for of, name, text in queries if of in (None, engine.name)]
        for name, text in of_engine:
            if name == "setup":
                engine.execute(text)
                continue
            began = time.monotonic()
            try:
                CHECKS[name](engine.rows(text), truth)
                answer = "as made"
            except Exception as error:  # Whatever an engine throws, a query that does not run is a failure.
                failures, answer = failures + 1, f"FAILS: {type(error).__name__}: {str(error)[:2000]}"
            print(f"{engine.name}: {name}: {answer} ({(time.monotonic() - began) * 1e3:.0f} ms)")
        asked = {name for name, _ in of_engine} - {"setup"}
        if asked != CHECKS.keys() - NOT_ASKED.get(engine.name, set()):
            failures += 1
            print(f"{engine.name}: the page has {sorted(asked)}, checks are of {sorted(CHECKS)}")
        print(f"{engine.name}: {sums(engine, truth)} sums are what was made")
    print(f"{truth['rows']} rows; {truth['bytes'] / truth['hosts']:.0f} bytes of a host's whole hour")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main(*(os.path.abspath(path) for path in sys.argv[1:])))
