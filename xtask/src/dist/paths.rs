//! What is given out holds no folder of who builds it: neither where the source lies, nor a home, nor where compilers and crates are.

use std::{
    env, fs,
    path::{Path, PathBuf},
    process::Command,
};

use crate::command::{output, root};

/// Fails if a file holds such a folder.
pub(super) fn expect_none(file: &Path) -> anyhow::Result<()> {
    let bytes = fs::read(file)?;
    for folder in folders()? {
        if let Some(text) = found(&bytes, &folder) {
            anyhow::bail!("{} holds a folder of who builds it: {text}", file.display());
        }
    }
    Ok(())
}

fn folders() -> anyhow::Result<Vec<String>> {
    let sysroot = output(Command::new("rustc").args(["--print", "sysroot"]).current_dir(root()))?;
    let homes = ["HOME", "CARGO_HOME", "RUSTUP_HOME"].map(|name| env::var_os(name).map(PathBuf::from));
    let all = homes.into_iter().flatten().chain([root().to_owned(), PathBuf::from(sysroot.trim())]);
    // `/` of a user without a home is in every path.
    let of_one = all.filter(|folder| folder.components().count() > 1);
    Ok(of_one.map(|folder| format!("{}/", folder.display())).collect())
}

/// The text around a folder's name, if it is there.
fn found(bytes: &[u8], folder: &str) -> Option<String> {
    let at = bytes.windows(folder.len()).position(|part| part == folder.as_bytes())?;
    let is_text = |byte: &&u8| byte.is_ascii_graphic();
    Some(bytes[at..].iter().take_while(is_text).take(120).map(|&byte| char::from(byte)).collect())
}

#[cfg(test)]
mod tests {
    use super::found;

    #[test]
    fn a_folder_is_found_wherever_it_stands() {
        let bytes = b"\x7fELF\0/home/me/src/main.rs\0rest";
        assert_eq!(found(bytes, "/home/me/").as_deref(), Some("/home/me/src/main.rs"));
        assert_eq!(found(bytes, "/home/you/"), None);
    }
}
