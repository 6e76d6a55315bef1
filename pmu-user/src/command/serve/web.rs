//! Who may ask, and how: a web configuration as node_exporter and Prometheus have it (github.com/prometheus/exporter-toolkit,
//! docs/web-configuration.md): TLS, users with bcrypt's hashes, and here tokens with SHA-256's.

#[cfg(test)]
mod tests;

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
};

use anyhow::{Context as _, bail};
use base64::{Engine as _, engine::general_purpose::STANDARD};
use rustls::ServerConfig;
use sha2::{Digest as _, Sha256};
use yaml_rust2::{Yaml, YamlLoader};

use super::tls::{self, Files};
use crate::file;

/// Bytes of the file, and of what it names.
const BYTES_MAX: u64 = 1 << 20;

/// What is known of a secret: SHA-256 of it.
type Hash = [u8; 32];

/// Who may ask, and how.
#[derive(Debug, Default)]
pub(super) struct Web {
    /// How connections are encrypted, if they are.
    pub(super) tls: Option<Arc<ServerConfig>>,
    /// Do clients need a certificate?
    asks_for_certificates: bool,
    /// Users, and bcrypt's hashes of their passwords.
    users: BTreeMap<String, String>,
    /// Tokens.
    tokens: Vec<Hash>,
    /// What was right the last time: bcrypt takes a tenth of a second on purpose.
    admitted: Mutex<Option<Hash>>,
}

impl Web {
    /// Reads the configuration.
    ///
    /// # Errors
    ///
    /// It cannot be read, or says something that is not understood: nothing in it is passed over.
    pub(super) fn read(path: &Path) -> anyhow::Result<Self> {
        let text =
            file::read_regular(path, BYTES_MAX).with_context(|| format!("cannot read {}", path.display()))?;
        let folder = path.parent().unwrap_or(Path::new("."));
        Self::parse(&text, folder).with_context(|| path.display().to_string())
    }

    fn parse(text: &[u8], folder: &Path) -> anyhow::Result<Self> {
        let text = std::str::from_utf8(text).context("it is no UTF-8")?;
        let documents = YamlLoader::load_from_str(text)?;
        let mut web = Self::default();
        for (key, value) in
            documents.iter().flat_map(|document| entries(document, "")).collect::<Result<Vec<_>, _>>()?
        {
            match key {
                "tls_server_config" => (web.tls, web.asks_for_certificates) = tls(value, folder)?,
                "basic_auth_users" => {
                    for entry in entries(value, key) {
                        let (user, hash) = entry?;
                        let hash = string(hash, &format!("{key}: what `{user}` has"))?;
                        // A password of its own would be in the clear there.
                        if !hash.starts_with("$2") || bcrypt::verify("", hash).is_err() {
                            bail!(
                                "{key}: what `{user}` has is no hash of bcrypt: `htpasswd -nBC 10 ''` makes one"
                            );
                        }
                        web.users.insert(user.to_owned(), hash.to_owned());
                    }
                }
                "bearer_tokens_sha256" => {
                    let list = value.as_vec().with_context(|| format!("{key} is no list"))?;
                    for hash in list {
                        web.tokens.push(
                            hash_of(string(hash, key)?)
                                .with_context(|| format!("{key}: no SHA-256 in hexadecimal"))?,
                        );
                    }
                }
                other => bail!(
                    "`{other}` is not known here: there are tls_server_config, basic_auth_users and bearer_tokens_sha256"
                ),
            }
        }
        Ok(web)
    }

    /// Is nobody asked who he is?
    pub(super) fn is_open(&self) -> bool {
        self.users.is_empty() && self.tokens.is_empty()
    }

    /// Does everybody who is admitted say who he is?
    pub(super) fn knows_who_asks(&self) -> bool {
        !self.is_open() || self.asks_for_certificates
    }

    /// May somebody ask whose request has this `Authorization`?
    pub(super) fn admits(&self, authorization: Option<&str>) -> bool {
        if self.is_open() {
            return true;
        }
        let Some((scheme, rest)) = authorization.and_then(|all| all.trim().split_once(' ')) else {
            return false;
        };
        let rest = rest.trim();
        if scheme.eq_ignore_ascii_case("bearer") {
            return self.tokens.contains(&sha256(rest.as_bytes()));
        }
        scheme.eq_ignore_ascii_case("basic") && self.knows(rest)
    }

    /// Is it a user's name and password, as base64 of `name:password`?
    fn knows(&self, basic: &str) -> bool {
        let given = sha256(basic.as_bytes());
        let mut admitted = self.admitted.lock().unwrap_or_else(PoisonError::into_inner);
        if *admitted == Some(given) {
            return true;
        }
        let Some(decoded) = STANDARD.decode(basic).ok().and_then(|bytes| String::from_utf8(bytes).ok())
        else {
            return false;
        };
        let Some((user, password)) = decoded.split_once(':') else { return false };
        let hash = self.users.get(user);
        // As long for a name that there is not.
        let other = self.users.values().next();
        let is_right = hash.or(other).is_some_and(|hash| bcrypt::verify(password, hash).unwrap_or(false));
        let is_known = is_right && hash.is_some();
        if is_known {
            *admitted = Some(given);
        }
        is_known
    }
}

/// How connections are encrypted, and whether clients need a certificate.
fn tls(value: &Yaml, folder: &Path) -> anyhow::Result<(Option<Arc<ServerConfig>>, bool)> {
    let mut files = Files::default();
    let mut is_newest_only = false;
    let path = |value: &Yaml, key: &str| anyhow::Ok(folder.join(string(value, key)?));
    for entry in entries(value, "tls_server_config") {
        let (key, value) = entry?;
        match key {
            "cert_file" => files.certificates = path(value, key)?,
            "key_file" => files.key = path(value, key)?,
            "client_ca_file" => files.client_authorities = Some(path(value, key)?),
            "client_auth_type" => match string(value, key)? {
                "RequireAndVerifyClientCert" => {}
                other => bail!("client_auth_type `{other}`: RequireAndVerifyClientCert is the one there is"),
            },
            "min_version" => {
                is_newest_only = match string(value, key)? {
                    "TLS13" => true,
                    "TLS12" => false,
                    other => bail!("min_version `{other}`: there are TLS12 and TLS13"),
                };
            }
            other => bail!("tls_server_config: `{other}` is not known here"),
        }
    }
    if files.certificates == PathBuf::new() || files.key == PathBuf::new() {
        bail!("tls_server_config needs cert_file and key_file");
    }
    let config = tls::config(&files, is_newest_only, BYTES_MAX)?;
    Ok((Some(Arc::new(config)), files.client_authorities.is_some()))
}

/// Keys and values of a mapping; nothing of what is empty.
fn entries<'a>(value: &'a Yaml, what: &str) -> impl Iterator<Item = anyhow::Result<(&'a str, &'a Yaml)>> {
    let what = if what.is_empty() { "it".to_owned() } else { what.to_owned() };
    let (map, wrong) = match value {
        Yaml::Hash(map) => (Some(map), None),
        Yaml::Null | Yaml::BadValue => (None, None),
        _ => (None, Some(Err(anyhow::anyhow!("{what} is no mapping of names to values")))),
    };
    let entries = map.into_iter().flatten().map(|(key, value)| Ok((string(key, "a name")?, value)));
    wrong.into_iter().chain(entries)
}

fn string<'a>(value: &'a Yaml, what: &str) -> anyhow::Result<&'a str> {
    value.as_str().with_context(|| format!("{what} is no text"))
}

fn sha256(bytes: &[u8]) -> Hash {
    Sha256::digest(bytes).into()
}

/// 64 hexadecimal digits.
fn hash_of(text: &str) -> Option<Hash> {
    let digits = text.as_bytes();
    let mut hash = [0; 32];
    if digits.len() != 2 * hash.len() {
        return None;
    }
    for (byte, pair) in hash.iter_mut().zip(digits.chunks_exact(2)) {
        *byte = u8::from_str_radix(std::str::from_utf8(pair).ok().filter(|pair| !pair.starts_with('+'))?, 16)
            .ok()?;
    }
    Some(hash)
}
