//! Check that published files contain no folder of their builder: neither that of the source, nor a home, nor
//! those of compilers and crates.

use std::{
    env,
    ffi::OsString,
    fs,
    path::{Path, PathBuf},
};

use crate::{command::root, setup};

/// Folders of the builder, with a slash at the end, and the names in each.
pub(super) struct Folders(Vec<(String, Vec<OsString>)>);

impl Folders {
    pub(super) fn of_builder() -> anyhow::Result<Self> {
        let homes = ["HOME", "CARGO_HOME", "RUSTUP_HOME"].map(|name| env::var_os(name).map(PathBuf::from));
        let all = homes.into_iter().flatten().chain([root().to_owned(), setup::sysroot()?]);
        // `/` of a user without a home is in every path.
        let of_one = all.filter(|folder| folder.components().count() > 1);
        Ok(Self(of_one.map(|folder| (format!("{}/", folder.display()), names(&folder))).collect()))
    }

    /// Fails if a file, or one below a folder, contains such a folder.
    pub(super) fn expect_none(&self, path: &Path) -> anyhow::Result<()> {
        if path.is_dir() {
            return fs::read_dir(path)?.try_for_each(|entry| self.expect_none(&entry?.path()));
        }
        let bytes = fs::read(path)?;
        for (folder, names) in &self.0 {
            if let Some(text) = found(&bytes, folder, names) {
                anyhow::bail!("{} holds a folder of who builds it: {text}", path.display());
            }
        }
        Ok(())
    }
}

/// Returns the names in a folder.
fn names(folder: &Path) -> Vec<OsString> {
    fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.file_name()).collect()
}

/// Returns the text from a folder's name on, if it names something in the folder. Compilers put texts one
/// after the other: `self/root` and `/sys/class` give `/root/sys/class`.
fn found(bytes: &[u8], folder: &str, names: &[OsString]) -> Option<String> {
    let is_path = |text: &[u8]| {
        let rest = text.strip_prefix(folder.as_bytes());
        rest.is_some_and(|rest| names.iter().any(|name| rest.starts_with(name.as_encoded_bytes())))
    };
    let at = (0..bytes.len()).find(|&at| bytes[at] == b'/' && is_path(&bytes[at..]))?;
    let is_text = |byte: &&u8| byte.is_ascii_graphic();
    Some(bytes[at..].iter().take_while(is_text).take(120).map(|&byte| char::from(byte)).collect())
}

#[cfg(test)]
mod tests {
    use super::found;

    #[test]
    fn a_folder_is_found_wherever_it_stands() {
        let bytes = b"\x7fELF\0/home/me/src/main.rs\0rest";
        let names = ["other", "src"].map(Into::into);
        assert_eq!(found(bytes, "/home/me/", &names).as_deref(), Some("/home/me/src/main.rs"));
        assert_eq!(found(bytes, "/home/you/", &names), None);
    }

    #[test]
    fn two_texts_that_look_like_a_folder_together_are_none() {
        let names = [".cargo".into(), "work".into()];
        assert_eq!(found(b"proc/self/root/sys/class/net", "/root/", &names), None);
        let both = b"proc/self/root/sys/class/net/root/.cargo/registry";
        assert_eq!(found(both, "/root/", &names).as_deref(), Some("/root/.cargo/registry"));
    }
}
