//! Cost of a block request and of a packet, for all programs together. `cargo xtask bench io` runs it, as
//! root.
//!
//! Prints a line of pairs: nanoseconds by the kernel's statistics, which add to every run of a program, and
//! the number of runs. The first pair is for a request that goes straight to its device and completes on the
//! CPU that issued it. Requests of a disk with a queue per CPU do so. The second is for the same request with
//! programs that only read the clock. The third is for a request that completes on the CPU where its device
//! was at work. The fourth is for one that waits in a scheduler's queue. The last two are for a packet that
//! is sent, and for one that is received.

use std::{
    fmt, fs,
    io::{Error, Read as _, Write as _, stdout},
    net::{TcpListener, TcpStream},
    path::{Path, PathBuf},
    process::Command,
    thread,
};

use anyhow::{Context as _, ensure};
use pmbpf::{
    bpf::{
        self, Kernel, Options,
        io::{Bios, IoObject, IoOptions, Parts, Wanted},
    },
    machine::Machine,
    plan::request::By,
    untrusted::Untrusted,
};
use pmu_common::name::io::program;

/// Program object built for this bench alone.
static CLOCK_ONLY: &[u8] = aya::include_bytes_aligned!(concat!(env!("OUT_DIR"), "/pmbpf-clock-only"));

/// Size of the device's file, and number of bytes sent.
const FILE_BYTES: u64 = 64 << 20;
const SENT_BYTES: usize = 1 << 30;

fn main() -> anyhow::Result<()> {
    let device = Loop::new()?;
    // 2: a request completes where it was issued (`rq_affinity`, Documentation/ABI/stable/sysfs-block).
    let here = request(&device, "none", "2")?;
    let clock = clock_only(&device)?;
    let elsewhere = request(&device, "none", "1")?;
    let queued = request(&device, "mq-deadline", "1")?;
    write!(stdout(), "{here} {clock} {elsewhere} {queued} ")?;
    let [sent, received] = packets()?;
    writeln!(stdout(), "{sent} {received}")?;
    Ok(())
}

/// Cost of all programs for one request or packet.
struct Each {
    /// Time including what the kernel's statistics add to each run.
    ns: f64,
    runs: f64,
}

impl fmt::Display for Each {
    fn fmt(&self, into: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(into, "{} {}", self.ns, self.runs)
    }
}

/// Returns the cost of all programs per completed request.
fn request(device: &Loop, scheduler: &str, affinity: &str) -> anyhow::Result<Each> {
    device.set(scheduler, affinity)?;
    let object = counting(Parts::Block)?;
    per_request(device, program::COMPLETE, || object.loaded.program_costs())
}

/// Returns the cost of programs that read the clock at issue and completion of a request, on the same CPU.
fn clock_only(device: &Loop) -> anyhow::Result<Each> {
    const COMPLETE: &str = "clock_complete";
    device.set("none", "2")?;
    let mut object = aya::Ebpf::load(CLOCK_ONLY)?;
    for (program, tracepoint) in [("clock_issue", "block_rq_issue"), (COMPLETE, "block_rq_complete")] {
        let program = object.program_mut(program).context("the object lacks a program")?;
        let program: &mut aya::programs::RawTracePoint = program.try_into()?;
        program.load()?;
        program.attach(tracepoint)?;
    }
    per_request(device, COMPLETE, || {
        let costs = object.programs().filter_map(|(name, program)| {
            let info = program.info().ok()?;
            Some((name.to_owned(), info.run_count(), info.run_time().as_nanos() as u64))
        });
        costs.collect()
    })
}

/// Returns the cost of programs while a device is busy, per run of the one called `complete`. `costs`: name,
/// runs, ns.
fn per_request(
    device: &Loop,
    complete: &str,
    costs: impl Fn() -> Vec<(String, u64, u64)>,
) -> anyhow::Result<Each> {
    let _statistics = bpf::measure_costs()?;
    let options = "--name=bench --direct=1 --ioengine=libaio --rw=randread --bs=4k --iodepth=16 --size=64m \
                   --time_based --runtime=2 --output-format=terse";
    let fio = Command::new("fio")
        .args(options.split(' '))
        .arg(format!("--filename=/dev/{}", device.name))
        .output()
        .context("cannot run fio")?;
    ensure!(fio.status.success(), "fio failed, {}: {}", fio.status, Untrusted::new(fio.stderr).terminal());
    let costs = costs();
    let completed = costs.iter().find(|(name, ..)| name == complete).map_or(0, |&(_, runs, _)| runs);
    ensure!(completed > 10_000, "only {completed} requests");
    let per_request = |sum: u64| sum as f64 / completed as f64;
    let ns = per_request(costs.iter().map(|&(.., ns)| ns).sum());
    Ok(Each { ns, runs: per_request(costs.iter().map(|&(_, runs, _)| runs).sum()) })
}

/// Returns the cost per packet that is sent, and per packet that is received.
fn packets() -> anyhow::Result<[Each; 2]> {
    let object = counting(Parts::Net)?;
    object.net().map_err(|error| anyhow::anyhow!("{error}"))?;
    let _statistics = bpf::measure_costs()?;
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let address = listener.local_addr()?;
    let sender = thread::spawn(move || -> Result<(), Error> {
        let mut connection = TcpStream::connect(address)?;
        // One packet a call, not joined with the next.
        connection.set_nodelay(true)?;
        let chunk = [0; 4096];
        (0..SENT_BYTES / chunk.len()).try_for_each(|_| connection.write_all(&chunk))
    });
    let (mut connection, _) = listener.accept()?;
    let mut buffer = vec![0; 1 << 20];
    while connection.read(&mut buffer)? > 0 {}
    sender.join().ok().context("the sender panicked")??;
    let costs = object.loaded.program_costs();
    let each = |wanted: &str| {
        let cost = costs.iter().find(|(name, ..)| name == wanted);
        Each { ns: cost.map_or(f64::NAN, |&(_, runs, ns)| ns as f64 / runs as f64), runs: 1.0 }
    };
    Ok([each(program::SEND), each(program::RECEIVE)])
}

fn counting(parts: Parts) -> anyhow::Result<IoObject> {
    let root = Path::new("/");
    let machine = Machine::read(root)?;
    let wanted = IoOptions { wanted: Wanted::Everybody(By::Cgroup), parts, bios: Bios::Ignored };
    Ok(IoObject::open(&wanted, &machine, &Kernel::new(root, Options::default()))?)
}

/// Loop device over a file in memory, detached on drop.
struct Loop {
    name: String,
    backing: PathBuf,
}

impl Loop {
    fn new() -> anyhow::Result<Self> {
        let backing = PathBuf::from(format!("/dev/shm/pmbpf-bench-{}", std::process::id()));
        fs::write(&backing, vec![b'x'; FILE_BYTES as usize])?;
        let losetup = Command::new("losetup").args(["--find", "--show"]).arg(&backing).output();
        let path = losetup.ok().and_then(|output| String::from_utf8(output.stdout).ok());
        let name = path.and_then(|path| path.trim().strip_prefix("/dev/").map(str::to_owned));
        let Some(name) = name else {
            let _ = fs::remove_file(&backing);
            anyhow::bail!("losetup gave no loop device");
        };
        Ok(Self { name, backing })
    }

    fn set(&self, scheduler: &str, affinity: &str) -> anyhow::Result<()> {
        for (setting, value) in [("scheduler", scheduler), ("rq_affinity", affinity)] {
            fs::write(format!("/sys/block/{}/queue/{setting}", self.name), value)?;
        }
        Ok(())
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        // The kernel keeps the device and its settings for the next user.
        for (setting, value) in [("scheduler", "none"), ("rq_affinity", "1")] {
            let _ = fs::write(format!("/sys/block/{}/queue/{setting}", self.name), value);
        }
        let _ = Command::new("losetup").args(["--detach", &format!("/dev/{}", self.name)]).status();
        let _ = fs::remove_file(&self.backing);
    }
}
