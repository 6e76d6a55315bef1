//! What ends the help of each command: lines that can be typed.

/// Of `pmbpf run`.
pub(super) const RUN: &str = "\
Examples:
  pmbpf run -- make -j8                 a command, with its children
  pmbpf run -p 4711 -d 10 -g            a process for 10 s, with stacks
  pmbpf run --all-cgroups -I 1          every cgroup, each second, until Ctrl-C
  pmbpf run -a -- sleep 5               everything, as long as a command runs
  pmbpf run -d 60 -o web.pmbpf --cgroup web; pmbpf report web.pmbpf
  pmbpf run -d 60 -g -o web.html --cgroup web           a page for a browser

Without a target everything is counted. With a command and no -o, results go to stderr, because stdout is the command's; \
`-o -` sends them to stdout, and what the command prints to stderr.";

/// Of `pmbpf stat`.
pub(super) const STAT: &str = "\
Examples:
  pmbpf stat -- ./work                  what perf stat counts, of a command and its children
  pmbpf stat -r 5 -e cycles,instructions -- ./work      the mean of five runs
  pmbpf stat -I 1 --cgroup web          a cgroup, each second, until Ctrl-C
  pmbpf stat -d 10 -o counts.pmbpf; pmbpf report counts.pmbpf
  pmbpf stat -x, -A -a -- sleep 1       the fields of `perf stat -x`, a row for each CPU
  pmbpf stat -o counts.json -- ./work   results in a file, as .csv and .txt; others are recordings

Without a target everything is counted. With a command and no -o, results go to stderr, because stdout is the command's; \
`-o -` sends them to stdout, and what the command prints to stderr. Without rights a command is counted in user mode (`:u`).";

/// Of `pmbpf io`.
pub(super) const IO: &str = "\
Examples:
  pmbpf io -d 10                        devices, memory and links for 10 s, by cgroup
  pmbpf io -- fio job.fio               what a command does to them
  pmbpf io -I 1 --device nvme0n1        one device, each second, until Ctrl-C
  pmbpf io --summary                    what stands on the I/O side of this host

Uncore PMUs count for everybody: numbers of a device are `measured` for its only owner, `apportioned` by the \
bytes that each owner moved, or `system`. Without a target everything is told apart by cgroup. With a command and no -o, \
results go to stderr, because stdout is the command's; `-o -` sends them to stdout, and what the command prints to stderr.";

/// Of `pmbpf report`.
pub(super) const REPORT: &str = "\
Examples:
  pmbpf report web.pmbpf                the report that the run printed
  pmbpf report --json web.pmbpf         the same for a program
  pmbpf report --time 10s..20s --owner web web.pmbpf    a span, and an owner
  pmbpf report --annotate parse --symfs / web.pmbpf     a function's lines and instructions
  pmbpf report --html web.html web.pmbpf    a page for a browser, which needs nothing else
  pmbpf report --symfs ./debug web.pmbpf    with names from files elsewhere
  pmbpf report --redact web.pmbpf       with pseudonyms for names, to be shown to others";

/// Of `pmbpf serve`.
pub(super) const SERVE: &str = "\
Examples:
  pmbpf serve                           every container, pod, unit and other cgroup, at http://127.0.0.1:9477/metrics
  pmbpf serve --cgroup 'k8s:shop/*'     one namespace's pods
  pmbpf serve --listen 10.0.0.7:9477    for a server on another host
  pmbpf serve --otlp-profiles http://127.0.0.1:4318
                                        pushes stacks of samples to a collector, too
  pmbpf serve --flight-recorder /var/lib/pmbpf --when 'runqueue_latency.p99>20ms for 10s'
                                        and a recording of the minutes before tasks had to wait

SIGTERM and Ctrl-C end it, and nothing of it stays but dumps.";

/// Of `pmbpf export`.
pub(super) const EXPORT: &str = "\
Examples:
  pmbpf export web.pmbpf --to folded | flamegraph.pl > web.svg
  pmbpf export web.pmbpf --to pprof -o web.pb.gz    for `go tool pprof -http : web.pb.gz`
  pmbpf export web.pmbpf --to perfetto -o web.pftrace   for ui.perfetto.dev
  pmbpf export web.pmbpf --to parquet -I 1s -o web.parquet  for DuckDB

Formats of stacks need a recording with stacks: `pmbpf run --stacks -o web.pmbpf`.";
/// Of `pmbpf diff`.
pub(super) const DIFF: &str = "\
Examples:
  pmbpf diff before.pmbpf after.pmbpf               two recordings: how each varies over its ticks is chance
  pmbpf diff a1.pmbpf,a2.pmbpf,a3.pmbpf b1.pmbpf,b2.pmbpf,b3.pmbpf      two groups: how runs differ is chance
  pmbpf diff before.pmbpf after.pmbpf --fail-on 'regress:cpu_time>5%'   exit code 3 if it is surely worse by more
  pmbpf diff before.pmbpf after.pmbpf --json        every number for a program
  pmbpf diff before.pmbpf after.pmbpf --html d.html one page, to be opened in a browser

Processes are matched by name, those of one name together, and cgroups by path. Recordings that alternate (A B A B) share what \
changes on the host in that time.";

/// Of `pmbpf eval`.
pub(super) const EVAL: &str = "\
Examples:
  pmbpf eval --cpu icelakex --counts counts.json
  pmbpf eval --cpu sapphirerapids --io --counts io.json --json";

/// Of `pmbpf doctor`.
pub(super) const DOCTOR: &str = "\
Examples:
  pmbpf doctor                          what works here; exit code 0 if `pmbpf run` does
  pmbpf doctor --json                   the same for a program";

/// Of `pmbpf list`.
pub(super) const LIST: &str = "\
Examples:
  pmbpf list events                     what -e takes here
  pmbpf list events 'sched:*'           tracepoints
  pmbpf list metrics                    what --metrics takes here
  pmbpf list cgroups web                cgroups that are called so";

/// Of `pmbpf top`.
pub(super) const TOP: &str = "\
Examples:
  pmbpf top                             every cgroup, each second
  pmbpf top --cgroup web --io           a cgroup and those below, with what they move
  pmbpf top -p 4711 --by thread -I 500ms    the threads of a process, twice a second
  pmbpf run --all-cgroups -d 60 -o web.pmbpf; pmbpf top web.pmbpf

`?` shows the keys. Without a terminal: `pmbpf run -I 1s`.";
