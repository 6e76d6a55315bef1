"""Reads exports with what others wrote (DuckDB, chDB, Perfetto's and OpenTelemetry's messages) and holds their sums against rows of JSON.

Run by `cargo xtask exports`: read.py FOLDER, which has for each recording NAME.json (`pmbpf report --json`), NAME.parquet and
NAME.pftrace of the same intervals, and NAME.otlp where it has stacks. Prints a line for each sum that is held, and ends with 1 where one differs.
"""

import json
import math
import sys
from collections import defaultdict
from pathlib import Path

import chdb
import duckdb
from opentelemetry.proto.collector.profiles.v1development.profiles_service_pb2 import ExportProfilesServiceRequest
from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import Trace, TrackEvent

CULPRIT = "runqueue_latency.culprit"


def reported(path):
    """Values by kind of owner and metric: those of rows `metric` and of rows `culprit`, with gaps as `gap`."""
    sums = defaultdict(list)
    for row in map(json.loads, path.read_text().splitlines()):
        kind = (row.get("owner") or {"kind": "host"})["kind"] if "owner" in row else None
        if row["kind"] == "metric" and row["value"] is not None:
            sums[kind, row["metric"]].append(row["value"])
        elif row["kind"] == "culprit":
            sums[kind, CULPRIT].append(row["wait_ns"])
        elif row["kind"] == "gap":
            sums["gap", ""].append(1)
    return {key: math.fsum(values) for key, values in sums.items()}


def parquet_by(rows):
    """Sums of a table's rows (owner_kind, metric, sum), without the parts of distributions, which JSON has in one row."""
    return {(kind, metric): float(total) for kind, metric, total in rows}


QUERY = "SELECT owner_kind, metric, sum(value) FROM {} WHERE value IS NOT NULL GROUP BY owner_kind, metric"


def duckdb_sums(path):
    return parquet_by(duckdb.sql(QUERY.format(f"'{path}'")).fetchall())


def chdb_sums(path):
    text = chdb.query(QUERY.format(f"file('{path}', Parquet)"), "JSONCompactEachRow").bytes().decode()
    return parquet_by(map(json.loads, text.splitlines()))


def perfetto_sums(path):
    """Sums of counters by metric, of each all values but the last, which only ends its interval; and slices."""
    trace = Trace()
    trace.ParseFromString(path.read_bytes())
    names, values, slices = {}, defaultdict(list), 0
    for packet in trace.packet:
        if packet.HasField("track_descriptor"):
            names[packet.track_descriptor.uuid] = packet.track_descriptor.name
        elif packet.HasField("track_event"):
            event = packet.track_event
            if event.type == TrackEvent.TYPE_COUNTER:
                values[event.track_uuid].append(event.double_counter_value)
            slices += event.type == TrackEvent.TYPE_SLICE_BEGIN
    sums = defaultdict(list)
    for track, of in values.items():
        sums[names[track].split(" ")[-1]].extend(of[:-1])
    return {metric: math.fsum(values) for metric, values in sums.items()}, slices


def stacks_reported(path):
    """Values of stacks by owner and kind, and the functions in them."""
    sums, functions = defaultdict(list), set()
    for row in map(json.loads, path.read_text().splitlines()):
        if row["kind"] == "stack":
            sums[row["owner"]["name"], "samples"].extend(row.get("samples_by_event") or [row["samples"]])
        elif row["kind"] == "off_cpu_stack":
            sums[row["owner"]["name"], "offcpu-time"].append(row["time_ns"]["value"])
        else:
            continue
        functions |= {frame["function"] for frame in row["frames"] if frame.get("function")}
    return {key: math.fsum(of) for key, of in sums.items() if any(of)}, functions


def otlp_stacks(path):
    """The same of OTLP's profiles."""
    request = ExportProfilesServiceRequest()
    request.ParseFromString(path.read_bytes())
    table = request.dictionary
    text = table.string_table
    sums, functions = defaultdict(list), set()
    for of in request.resource_profiles:
        service = next(at.value.string_value for at in of.resource.attributes if at.key == "service.name")
        for profile in of.scope_profiles[0].profiles:
            for sample in profile.samples:
                sums[service, text[profile.sample_type.type_strindex]].append(sum(sample.values))
                for at in table.stack_table[sample.stack_index].location_indices:
                    lines = table.location_table[at].lines
                    functions |= {text[table.function_table[line.function_index].name_strindex] for line in lines}
    return {key: math.fsum(of) for key, of in sums.items()}, functions - {"(the rest)"}


def main(folder):
    failures = 0

    def hold(what, found, wanted):
        nonlocal failures
        shared = sorted(set(found) & set(wanted))
        missing = sorted(set(wanted) - set(found))
        wrong = [key for key in shared if not math.isclose(found[key], wanted[key], rel_tol=1e-9, abs_tol=1e-6)]
        failures += bool(missing or wrong or not shared)
        print(f"{what}: {len(shared)} sums, {len(wrong)} differ, {len(missing)} are missing", *wrong[:3], *missing[:3])

    for rows in sorted(Path(folder).glob("*.json")):
        wanted = reported(rows)
        gaps = wanted.pop(("gap", ""), 0)
        table = rows.with_suffix(".parquet")
        hold(f"{rows.stem}: DuckDB", duckdb_sums(table), wanted)
        hold(f"{rows.stem}: chDB", chdb_sums(table), wanted)
        by_metric = defaultdict(list)
        for (_, metric), value in wanted.items():
            by_metric[metric].append(value)
        counters, slices = perfetto_sums(rows.with_suffix(".pftrace"))
        hold(f"{rows.stem}: Perfetto", counters, {name: math.fsum(of) for name, of in by_metric.items()})
        if rows.with_suffix(".otlp").exists():
            wanted_stacks, wanted_functions = stacks_reported(rows)
            found, functions = otlp_stacks(rows.with_suffix(".otlp"))
            hold(f"{rows.stem}: OpenTelemetry, stacks", found, wanted_stacks)
            hold(f"{rows.stem}: OpenTelemetry, functions", dict.fromkeys(functions, 1), dict.fromkeys(wanted_functions, 1))
        hold(f"{rows.stem}: Perfetto, gaps", {"slices": slices}, {"slices": gaps})
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
