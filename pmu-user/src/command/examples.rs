//! Examples at the end of each command's help, which can be typed as they are.

/// Examples of `pmbpf run`.
pub(super) const RUN: &str = "\
Examples:
  pmbpf run -- make -j8                 a command, with its children
  pmbpf run -p 4711 -d 10 -g            a process for 10 s, with stacks
  pmbpf run --all-cgroups -I 1          every cgroup, every second, until Ctrl-C
  pmbpf run -a -- sleep 5               everything, while a command runs
  pmbpf run -d 60 -o web.pmbpf --cgroup web; pmbpf report web.pmbpf
  pmbpf run -d 60 -g -o web.html --cgroup web           a page for a browser

Without a target, everything is counted. With a command and no -o, results go to stderr, because stdout is the command's; \
`-o -` prints results to stdout and redirects the command's stdout to stderr.";

/// Examples of `pmbpf stat`.
pub(super) const STAT: &str = "\
Examples:
  pmbpf stat -- ./work                  the events of perf stat, for a command and its children
  pmbpf stat -r 5 -e cycles,instructions -- ./work      the mean of five runs
  pmbpf stat -I 1 --cgroup web          a cgroup, every second, until Ctrl-C
  pmbpf stat -d 10 -o counts.pmbpf; pmbpf report counts.pmbpf
  pmbpf stat -x, -A -a -- sleep 1       the fields of `perf stat -x`, one row per CPU
  pmbpf stat -o counts.json -- ./work   results in a file (also .csv, .txt); other names are recordings

Without a target, everything is counted. With a command and no -o, results go to stderr, because stdout is the command's; \
`-o -` prints results to stdout and redirects the command's stdout to stderr. Without privileges, a command is counted in user \
mode only (`:u`).";

/// Examples of `pmbpf io`.
pub(super) const IO: &str = "\
Examples:
  pmbpf io -d 10                        devices, memory and links for 10 s, by cgroup
  pmbpf io -- fio job.fio               the same, for a command
  pmbpf io -I 1 --device nvme0n1        one device, every second, until Ctrl-C
  pmbpf io --summary                    sockets, memory, links, stacks and devices of this host

Uncore PMUs count for the whole system: numbers of a device are `measured` for its only owner, `apportioned` by the \
bytes that each owner moved, or `system`. Without a target, I/O is attributed by cgroup. With a command and no -o, \
results go to stderr, because stdout is the command's; `-o -` prints results to stdout and redirects the command's stdout \
to stderr.";

/// Examples of `pmbpf report`.
pub(super) const REPORT: &str = "\
Examples:
  pmbpf report web.pmbpf                the report that the run printed
  pmbpf report --json web.pmbpf         the same, as JSON
  pmbpf report --time 10s..20s --owner web web.pmbpf    one span and one owner
  pmbpf report --annotate parse --symfs / web.pmbpf     a function's lines and instructions
  pmbpf report --html web.html web.pmbpf    a self-contained page for a browser
  pmbpf report --symfs ./debug web.pmbpf    with names from files in ./debug
  pmbpf report --redact web.pmbpf       with pseudonyms for names, to share it";

/// Examples of `pmbpf serve`.
pub(super) const SERVE: &str = "\
Examples:
  pmbpf serve                           every container, pod, unit and other cgroup, at http://127.0.0.1:9477/metrics
  pmbpf serve --cgroup 'k8s:shop/*'     the pods of one namespace
  pmbpf serve --listen 10.0.0.7:9477    to be scraped from another host
  pmbpf serve --otlp-profiles http://127.0.0.1:4318
                                        also pushes sampled stacks to a collector
  pmbpf serve --flight-recorder /var/lib/pmbpf --when 'runqueue_latency.p99>20ms for 10s'
                                        also records the minutes before tasks had to wait

Stops on SIGTERM or Ctrl-C; only dumps are left behind.";

/// Examples of `pmbpf export`.
pub(super) const EXPORT: &str = "\
Examples:
  pmbpf export web.pmbpf --to folded | flamegraph.pl > web.svg
  pmbpf export web.pmbpf --to pprof -o web.pb.gz    for `go tool pprof -http : web.pb.gz`
  pmbpf export web.pmbpf --to perfetto -o web.pftrace   for ui.perfetto.dev
  pmbpf export web.pmbpf --to parquet -I 1s -o web.parquet  for DuckDB

Stack formats need a recording with stacks: `pmbpf run --stacks -o web.pmbpf`.";
/// Examples of `pmbpf diff`.
pub(super) const DIFF: &str = "\
Examples:
  pmbpf diff before.pmbpf after.pmbpf               two recordings; the variation over ticks is taken as noise
  pmbpf diff a1.pmbpf,a2.pmbpf,a3.pmbpf b1.pmbpf,b2.pmbpf,b3.pmbpf      two groups; the variation between runs is taken as noise
  pmbpf diff before.pmbpf after.pmbpf --fail-on 'regress:cpu_time>5%'   exit code 3 if it is worse by more
  pmbpf diff before.pmbpf after.pmbpf --json        every number, as JSON
  pmbpf diff before.pmbpf after.pmbpf --html d.html a page for a browser

Processes are matched by name (all with the same name together), cgroups by path. Alternate the recordings (A B A B), so \
that changes of the host affect both sides.";

/// Examples of `pmbpf eval`.
pub(super) const EVAL: &str = "\
Examples:
  pmbpf eval --cpu icelakex --counts counts.json
  pmbpf eval --cpu sapphirerapids --io --counts io.json --json";

/// Examples of `pmbpf doctor`.
pub(super) const DOCTOR: &str = "\
Examples:
  pmbpf doctor                          what works on this host; exit code 0 if `pmbpf run` works
  pmbpf doctor --json                   the same, as JSON";

/// Examples of `pmbpf list`.
pub(super) const LIST: &str = "\
Examples:
  pmbpf list events                     events for -e on this host
  pmbpf list events 'sched:*'           tracepoints
  pmbpf list metrics                    metrics for --metrics on this host
  pmbpf list cgroups web                cgroups with `web` in their name or path";

/// Examples of `pmbpf top`.
pub(super) const TOP: &str = "\
Examples:
  pmbpf top                             every cgroup, every second
  pmbpf top --cgroup web --io           a cgroup and its descendants, with their I/O
  pmbpf top -p 4711 --by thread -I 500ms    the threads of a process, twice a second
  pmbpf run --all-cgroups -d 60 -o web.pmbpf; pmbpf top web.pmbpf

Press `?` for the keys. Without a terminal, use `pmbpf run -I 1s`.";
