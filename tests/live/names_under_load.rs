//! Function names on a host with busy CPUs: they come later there, and are not lost. `PMBPF_ROUNDS` is the
//! number of runs of each program. `cargo xtask nightly` requests more than one.

mod nightly {
    use std::{
        collections::BTreeMap,
        fs,
        process::{Child, Command, Stdio},
        time::{Duration, Instant},
    };

    use serde_json::Value;

    use crate::{
        support::{Rows, Scratch, output, text},
        workloads::workload,
    };

    /// Busy processes per CPU.
    const BUSY: usize = 10;

    /// Processes that use CPU time until this is dropped.
    struct Busy(Vec<Child>);

    impl Busy {
        fn begin(nice: &str) -> Self {
            let cpus = std::thread::available_parallelism().unwrap().get();
            let spin = workload("spin", &["-g"]);
            let one = || {
                let mut command = Command::new("nice");
                // They end by themselves if the test is killed.
                command.args(["-n", nice, &spin, "60"]).stdout(Stdio::null()).spawn().unwrap()
            };
            Self((0..BUSY * cpus).map(|_| one()).collect())
        }
    }

    impl Drop for Busy {
        fn drop(&mut self) {
            for child in &mut self.0 {
                let _ = child.kill();
                let _ = child.wait();
            }
        }
    }

    /// Returns the samples of a run by module, with names and without.
    fn modules(rows: &Rows) -> BTreeMap<String, [u64; 2]> {
        let mut modules: BTreeMap<String, [u64; 2]> = BTreeMap::new();
        for row in rows.of_kind("hot").filter(|row| row["mode"] == "user") {
            let Some(module) = row["frame"]["module"].as_str() else { continue };
            let has_name = row["frame"]["function"].is_string();
            modules.entry(module.to_owned()).or_default()[usize::from(!has_name)] += samples(row);
        }
        modules
    }

    fn samples(row: &Value) -> u64 {
        row["samples"].as_u64().unwrap()
    }

    /// Asserts that the output of a run under load is complete, and returns the run's duration.
    #[expect(clippy::print_stdout, reason = "a series has figures")]
    fn check(program: &str, command: &[&str]) -> Duration {
        let begun = Instant::now();
        let output = output(&[&["-F", "199", "--no-metrics", "--"], command].concat());
        let took = begun.elapsed();
        assert!(output.status.success(), "{program}: {}", text(&output.stderr));
        let rows = Rows::parse(&output.stderr);
        let covered = rows.summary()["quality"]["samples"]["coverage"].as_f64().unwrap();
        // Samples promised by the target's CPU time and QUALITY: every one is in the table, within five
        // standard errors and a tenth.
        let promised = rows.total("cpu_time") / 1e9 * 199.0 * covered;
        let seen: u64 = rows.of_kind("hot").map(samples).sum();
        let apart = (promised - seen as f64).abs();
        assert!(
            apart < 5.0 * promised.sqrt() + 0.1 * promised,
            "{program}: {seen} samples in the table, not {promised}"
        );
        assert!(
            seen == 0 || rows.of_kind("function").count() > 0,
            "{program}: {seen} samples, and no function"
        );
        let modules = modules(&rows);
        for (module, [named, unnamed]) in &modules {
            // A file without symbols has none on a quiet host either.
            let is_readable = fs::File::open(module).is_ok();
            let why = |row: &&Value| {
                row["frame"]["module"] == module.as_str() && !row["frame"]["function"].is_string()
            };
            let reasons: Vec<&str> =
                rows.of_kind("hot").filter(why).filter_map(|row| row["reason"].as_str()).collect();
            let late = reasons.iter().any(|reason| reason.starts_with("names:"));
            assert!(
                !(is_readable && late && *named == 0),
                "{program}: {module}: {unnamed} lost: {reasons:?}"
            );
        }
        println!("{program}: {seen} samples, {modules:?}, {took:.1?} in all");
        took
    }

    const NODE: &str =
        "let o={};for(let i=0;i<3e6;i++){o['k'+(i%5000)]=(o['k'+(i%5000)]||0)+JSON.stringify([i]).length}";
    const PYTHON: &str = "import json\nfor i in range(60000): json.loads(json.dumps({'a':[i,{'b':str(i)}]}))";
    const JAVA: &str = "public class Load { static int fib(int n){ return n < 2 ? n : fib(n-1) + fib(n-2); } \
                        public static void main(String[] a){ System.out.println(fib(38)); } }";

    fn programs() -> Vec<(&'static str, Vec<String>, Vec<Scratch>)> {
        let folder = std::env::temp_dir();
        let java = Scratch::new("load");
        fs::create_dir(&java.0).unwrap();
        fs::write(java.0.join("Load.java"), JAVA).unwrap();
        let c = Scratch(folder.join(format!("{}.c", crate::support::unique("compile"))));
        let functions: String = (0..600)
            .map(|number| format!("int f{number}(int x){{for(int i=0;i<x;i++)x+=i*{number};return x%7;}}\n"))
            .collect();
        fs::write(&c.0, functions).unwrap();
        let command = |words: &[&str]| words.iter().map(|&word| word.to_owned()).collect::<Vec<_>>();
        let source = java.0.join("Load.java").to_str().unwrap().to_owned();
        let all = vec![
            ("node", command(&["node", "-e", NODE]), vec![]),
            ("python", command(&["python3", "-c", PYTHON]), vec![]),
            ("java", command(&["java", &source]), vec![java]),
            ("gcc", command(&["gcc", "-O2", "-c", "-o", "/dev/null", c.as_str()]), vec![c]),
        ];
        let is_here = |name: &str| Command::new(name).arg("--version").output().is_ok();
        all.into_iter()
            .filter(|(name, _, _)| is_here(if *name == "python" { "python3" } else { name }))
            .collect()
    }

    #[test]
    fn no_module_loses_its_names_and_no_table_is_empty() {
        let rounds: usize = std::env::var("PMBPF_ROUNDS").map_or(1, |rounds| rounds.parse().unwrap());
        let programs = programs();
        for nice in ["19", "0"] {
            for (name, command, _) in &programs {
                let command: Vec<&str> = command.iter().map(String::as_str).collect();
                for _ in 0..rounds {
                    let _busy = Busy::begin(nice);
                    check(&format!("{name} beside nice {nice}"), &command);
                }
            }
        }
        for (_, _, files) in programs {
            files.iter().for_each(|file| drop(fs::remove_dir_all(&file.0)));
        }
    }
}
