//! Debian packages, extracted into our own folders and never installed.
//!
//! apt runs with our own configuration: other suites than the machine's, from the mirror that the machine
//! uses already, and an empty list of installed packages. It checks signatures, and we check each file's hash
//! again.

use std::{
    collections::BTreeMap,
    env, fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context as _, bail};
use sha2::{Digest as _, Sha256};

use crate::command::{exists, output, run, say};

/// Suites with what guests need, from the oldest kernel's to the newest's.
const SUITES: [&str; 5] = ["bullseye", "bookworm", "bookworm-backports", "trixie", "trixie-backports"];
const SECURITY_SUITES: [&str; 3] = ["bullseye-security", "bookworm-security", "trixie-security"];
/// Release of the tools and of the guests' programs: each set is of one release.
const RELEASE: &str = "trixie";
const KEYRING: &str = "/usr/share/keyrings/debian-archive-keyring.gpg";
/// File that lists the contents of a folder, and shows that it is complete.
const STAMP: &str = ".packages";

/// apt with our configuration, and the paths of its files and ours.
pub(super) struct Apt {
    /// Packages, lists and everything made from them.
    pub(super) cache: PathBuf,
    /// Whether the lists have been read in this run.
    fresh: bool,
}

/// A package file that apt would fetch.
struct File {
    /// `name:architecture=version`, as apt takes it.
    package: String,
    name: String,
    sha256: String,
}

impl Apt {
    pub(super) fn new(cache: PathBuf) -> Self {
        Self { cache, fresh: false }
    }

    fn lists(&self) -> PathBuf {
        self.cache.join("apt")
    }

    /// Writes the configuration and reads the lists, once a run and only if something is missing.
    fn refresh(&mut self) -> anyhow::Result<()> {
        if self.fresh {
            return Ok(());
        }
        if !exists("apt-get") || !exists("dpkg-deb") {
            bail!("guests are made of Debian's packages: this needs apt-get and dpkg-deb");
        }
        if !Path::new(KEYRING).is_file() {
            bail!("{KEYRING} is missing: install debian-archive-keyring");
        }
        let folder = self.lists();
        for inner in ["lists/partial", "cache/archives/partial", "preferences", "parts"] {
            fs::create_dir_all(folder.join(inner))
                .with_context(|| format!("cannot create {}", folder.display()))?;
        }
        let place = folder.display();
        let configuration = format!(
            "Dir::Etc::sourcelist \"{place}/sources.list\";\nDir::Etc::sourceparts \"{place}/parts\";\n\
             Dir::Etc::preferencesparts \"{place}/preferences\";\nDir::State::lists \"{place}/lists\";\n\
             Dir::State::status \"{place}/status\";\nDir::Cache \"{place}/cache\";\n\
             APT::Architecture \"amd64\";\nAPT::Architectures {{ \"amd64\"; \"arm64\"; }};\n\
             Acquire::Languages \"none\";\nAcquire::ForceHash \"SHA256\";\nAcquire::Retries \"3\";\n\
             APT::Sandbox::User \"root\";\nAPT::Default-Release \"{RELEASE}\";\n"
        );
        fs::write(folder.join("apt.conf"), configuration)?;
        fs::write(folder.join("sources.list"), sources(&mirrors()?))?;
        fs::write(folder.join("status"), "")?;
        say("reading Debian's package lists");
        run(self.apt("apt-get").args(["update", "-qq"])).context("Debian's package lists cannot be had")?;
        self.fresh = true;
        Ok(())
    }

    fn apt(&self, program: &str) -> Command {
        let mut apt = Command::new(program);
        apt.env("APT_CONFIG", self.lists().join("apt.conf")).env("LC_ALL", "C");
        apt
    }

    /// Returns the names of packages that match, oldest version first.
    pub(super) fn search(&mut self, pattern: &str) -> anyhow::Result<Vec<String>> {
        self.refresh()?;
        let found = output(self.apt("apt-cache").args(["--names-only", "search", pattern]))?;
        let mut names: Vec<_> =
            found.lines().filter_map(|line| line.split(' ').next()).map(str::to_owned).collect();
        names.sort_by_key(|name| numbers(name));
        Ok(names)
    }

    /// Returns the names of the packages on which a package depends.
    pub(super) fn dependencies(&mut self, package: &str) -> anyhow::Result<Vec<String>> {
        self.refresh()?;
        let found = output(self.apt("apt-cache").args(["depends", "--important", package]))?;
        let names = found.lines().filter_map(|line| line.trim().strip_prefix("Depends: "));
        Ok(names.map(str::to_owned).collect())
    }

    /// Returns whether a folder is extracted already.
    pub(super) fn has(folder: &Path) -> bool {
        folder.join(STAMP).is_file()
    }

    /// Returns whether a folder is extracted already, from these packages and what they need.
    pub(super) fn has_closed(folder: &Path, packages: &[&str]) -> bool {
        let stamp = fs::read_to_string(folder.join(STAMP)).unwrap_or_default();
        stamp.lines().next() == Some(asked(packages).as_str())
    }

    /// Extracts `packages` (`name:architecture`) into `folder`.
    pub(super) fn extract(&mut self, folder: &Path, packages: &[String]) -> anyhow::Result<()> {
        self.refresh()?;
        let mut apt = self.apt("apt-get");
        let listed = output(apt.args(["download", "--print-uris", "-qq"]).args(packages))
            .with_context(|| format!("no such packages: {}", packages.join(" ")))?;
        self.extract_files(folder, "", &files(&listed)?)
    }

    /// Extracts `packages` and everything they need into `folder`.
    pub(super) fn extract_closed(
        &mut self,
        folder: &Path,
        architecture: &str,
        packages: &[&str],
    ) -> anyhow::Result<()> {
        self.refresh()?;
        let mut apt = self.apt("apt-get");
        apt.args(["install", "--print-uris", "-qq", "-y", "--no-install-recommends"]);
        apt.arg(format!("-oAPT::Architecture={architecture}"));
        let listed = output(apt.args(packages))
            .with_context(|| format!("not to be had for {architecture}: {}", packages.join(" ")))?;
        self.extract_files(folder, &format!("{}\n", asked(packages)), &files(&listed)?)
    }

    fn extract_files(&self, folder: &Path, asked: &str, files: &[File]) -> anyhow::Result<()> {
        let packages = self.cache.join("packages");
        fs::create_dir_all(&packages)?;
        let missing: Vec<_> = files.iter().filter(|file| !packages.join(&file.name).is_file()).collect();
        if !missing.is_empty() {
            say(&format!("downloading {} packages for {}", missing.len(), folder.display()));
            let names = missing.iter().map(|file| &file.package);
            run(self.apt("apt-get").args(["download", "-qq"]).args(names).current_dir(&packages))
                .context("Debian's packages cannot be had")?;
        }
        let building = folder.with_extension("part");
        if building.exists() {
            fs::remove_dir_all(&building)?;
        }
        fs::create_dir_all(&building)?;
        // base-files makes /bin, /lib and /sbin links into /usr, so it comes first.
        let (first, others): (Vec<_>, Vec<_>) =
            files.iter().partition(|file| file.name.starts_with("base-files_"));
        for file in first.into_iter().chain(others) {
            let path = packages.join(&file.name);
            check(&path, &file.sha256)?;
            run(Command::new("dpkg-deb").arg("-x").arg(&path).arg(&building))?;
        }
        let contents: String = files.iter().map(|file| format!("{}  {}\n", file.sha256, file.name)).collect();
        fs::write(building.join(STAMP), format!("{asked}{contents}"))?;
        if folder.exists() {
            fs::remove_dir_all(folder)?;
        }
        fs::rename(&building, folder).with_context(|| format!("cannot create {}", folder.display()))
    }
}

/// Returns the first line of the stamp of a folder with packages that were requested by name.
fn asked(packages: &[&str]) -> String {
    format!("# {}", packages.join(" "))
}

/// Returns everything from which a folder was extracted, with hashes.
pub(super) fn stamp(folder: &Path) -> anyhow::Result<String> {
    fs::read_to_string(folder.join(STAMP)).with_context(|| format!("{} is incomplete", folder.display()))
}

fn check(path: &Path, expected: &str) -> anyhow::Result<()> {
    let bytes = fs::read(path).with_context(|| format!("cannot read {}", path.display()))?;
    let found = hash(&bytes);
    if found != expected {
        let _ = fs::remove_file(path);
        bail!("{} has SHA-256 {found}, not {expected}: removed; run this again", path.display());
    }
    Ok(())
}

/// Number of digits of a [`key`].
pub(super) const KEY_DIGITS: usize = 12;

/// Returns a name for what is made of `text`.
pub(super) fn key(text: &str) -> String {
    hash(text.as_bytes()).chars().take(KEY_DIGITS).collect()
}

/// Returns the SHA-256 in hexadecimal.
fn hash(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Parses lines of `--print-uris`: `'URI' FILE SIZE SHA256:HASH`.
fn files(listed: &str) -> anyhow::Result<Vec<File>> {
    let parse = |line: &str| {
        let mut words = line.split(' ');
        let (_, name, _, hash) = (words.next()?, words.next()?, words.next()?, words.next()?);
        let mut parts = name.strip_suffix(".deb")?.split('_');
        let (package, version, architecture) = (parts.next()?, parts.next()?, parts.next()?);
        let version = version.replace("%3a", ":");
        let package = match architecture {
            "all" => format!("{package}={version}"),
            architecture => format!("{package}:{architecture}={version}"),
        };
        let sha256 = hash.strip_prefix("SHA256:")?;
        Some(File { package, name: name.to_owned(), sha256: sha256.to_owned() })
    };
    let lines = listed.lines().filter(|line| line.starts_with('\''));
    lines
        .map(|line| parse(line).with_context(|| format!("apt names a file in a way of its own: {line}")))
        .collect()
}

/// Returns the numbers in a name, by which versions are ordered.
fn numbers(name: &str) -> Vec<u64> {
    name.split(|character: char| !character.is_ascii_digit()).filter_map(|part| part.parse().ok()).collect()
}

fn sources([main, security]: &[String; 2]) -> String {
    let line = |mirror: &str, suite: &str| format!("deb [signed-by={KEYRING}] {mirror} {suite} main\n");
    let main = SUITES.iter().map(|suite| line(main, suite));
    main.chain(SECURITY_SUITES.iter().map(|suite| line(security, suite))).collect()
}

/// Returns the machine's own mirror of Debian, and that of its security updates; `PMBPF_DEBIAN_MIRROR` names
/// another.
fn mirrors() -> anyhow::Result<[String; 2]> {
    if let Ok(mirror) = env::var("PMBPF_DEBIAN_MIRROR") {
        let mirror = mirror.trim_end_matches('/').to_owned();
        return Ok([mirror.clone(), format!("{mirror}-security")]);
    }
    let mut known = BTreeMap::new();
    let mut files = vec![PathBuf::from("/etc/apt/sources.list")];
    let parts = fs::read_dir("/etc/apt/sources.list.d").into_iter().flatten().flatten();
    files.extend(parts.map(|entry| entry.path()));
    for file in
        files.iter().filter(|file| file.extension().is_some_and(|end| end == "list" || end == "sources"))
    {
        for (name, mirror) in mirrors_in(&fs::read_to_string(file).unwrap_or_default()) {
            known.entry(name).or_insert(mirror);
        }
    }
    let main = known.remove("debian").context(
        "this machine's apt names no mirror of Debian; set PMBPF_DEBIAN_MIRROR to one (its security updates are \
         expected beside it, with -security added)",
    )?;
    let security = known.remove("debian-security").unwrap_or_else(|| format!("{main}-security"));
    Ok([main, security])
}

/// Returns the mirrors in the text of a source list, old style or new, by the last part of their path.
fn mirrors_in(text: &str) -> Vec<(String, String)> {
    let lines = text.lines().filter(|line| !line.trim_start().starts_with('#'));
    let words = lines.flat_map(str::split_whitespace).filter(|word| word.contains("://"));
    let mirrors = words.map(|word| word.trim_end_matches('/')).filter_map(|mirror| {
        let name = mirror.rsplit('/').next()?;
        matches!(name, "debian" | "debian-security").then(|| (name.to_owned(), mirror.to_owned()))
    });
    mirrors.collect()
}

#[cfg(test)]
mod tests {
    use super::{files, mirrors_in, numbers};

    #[test]
    fn both_styles_of_source_lists_name_their_mirrors() {
        let old = "# deb http://commented/debian x main\ndeb [arch=amd64] http://one/debian bookworm main\n";
        let new = "Types: deb\nURIs: http://two/debian-security/\nSuites: bookworm-security\n";
        assert_eq!(mirrors_in(old), [("debian".to_owned(), "http://one/debian".to_owned())]);
        assert_eq!(
            mirrors_in(new),
            [("debian-security".to_owned(), "http://two/debian-security".to_owned())]
        );
    }

    #[test]
    fn a_listed_file_gives_the_package_and_its_hash() {
        let line = "'http://one/debian/pool/q.deb' qemu_1%3a10.0_amd64.deb 5 SHA256:ab\nNotice: nothing\n";
        let found = files(line).unwrap();
        assert_eq!((found[0].package.as_str(), found[0].sha256.as_str()), ("qemu:amd64=1:10.0", "ab"));
        assert!(files("'http://x' odd 5 MD5Sum:ab").is_err());
    }

    #[test]
    fn versions_are_ordered_by_their_numbers() {
        let mut names = ["linux-image-5.10.0-46", "linux-image-5.10.0-9"];
        names.sort_by_key(|name| numbers(name));
        assert_eq!(names[1], "linux-image-5.10.0-46");
    }
}
