//! Admission of clients: a web configuration in the format of node_exporter and Prometheus
//! (github.com/prometheus/exporter-toolkit, docs/web-configuration.md). It has TLS, users with bcrypt hashes,
//! and here tokens with SHA-256 hashes.

#[cfg(test)]
mod tests;

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    sync::Arc,
};

use anyhow::{Context as _, bail};
use base64::{Engine as _, engine::general_purpose::STANDARD};
use rustls::ServerConfig;
use yaml_rust2::Yaml;

use super::{
    passwords::{Credentials, Hash, sha256},
    tls::{self, Files},
    yaml::{self, entries, string},
};
use crate::file;

/// Size limit of the file, and of the files that it names, in bytes.
const BYTES_MAX: u64 = 1 << 20;

/// Highest cost of a bcrypt hash: a second or so for each check.
const COST_MAX: u32 = 14;

/// Encryption, and admission of clients.
#[derive(Debug, Default)]
pub(super) struct Web {
    /// Configuration of encryption, if connections are encrypted.
    pub(super) tls: Option<Arc<ServerConfig>>,
    /// Whether clients need a certificate.
    asks_for_certificates: bool,
    /// Users, and bcrypt hashes of their passwords.
    users: BTreeMap<String, String>,
    /// SHA-256 hashes of tokens.
    tokens: Vec<Hash>,
}

/// Admission by a request's `Authorization`.
#[derive(Debug)]
pub(super) enum Admission {
    Granted,
    Refused,
    /// Decided by this password.
    Password(Credentials),
}

impl Web {
    /// Reads the configuration.
    ///
    /// # Errors
    ///
    /// The file cannot be read, or has something unknown: nothing in it is ignored.
    pub(super) fn read(path: &Path) -> anyhow::Result<Self> {
        let text =
            file::read_regular(path, BYTES_MAX).with_context(|| format!("cannot read {}", path.display()))?;
        let folder = path.parent().unwrap_or(Path::new("."));
        Self::parse(&text, folder).with_context(|| path.display().to_string())
    }

    fn parse(text: &[u8], folder: &Path) -> anyhow::Result<Self> {
        let text = std::str::from_utf8(text).context("it is not UTF-8")?;
        let document = yaml::document(text)?;
        let mut web = Self::default();
        for (key, value) in entries(&document, "").collect::<Result<Vec<_>, _>>()? {
            match key {
                "tls_server_config" => (web.tls, web.asks_for_certificates) = tls(value, folder)?,
                "basic_auth_users" => web.users = users(value, key)?,
                "bearer_tokens_sha256" => web.tokens = tokens(value, key)?,
                other => bail!(
                    "unknown key `{other}`; the keys are tls_server_config, basic_auth_users and bearer_tokens_sha256"
                ),
            }
        }
        // A truncated file must not make a server without passwords.
        if web.is_open() && web.tls.is_none() {
            bail!(
                "it has no users, tokens or certificate: add `NAME: HASH` below basic_auth_users (`htpasswd -nBC 10 ''` makes a hash), or leave out --web-config"
            );
        }
        Ok(web)
    }

    /// Returns why this configuration may not replace another while a server runs, if it may not: it would
    /// require less.
    pub(super) fn opens(&self, before: &Self) -> Option<&'static str> {
        if before.knows_who_asks() && !self.knows_who_asks() {
            return Some("it has no users, tokens or certificates of clients any more");
        }
        (before.tls.is_some() && self.tls.is_none()).then_some("it has no tls_server_config any more")
    }

    /// Returns whether no authentication is configured.
    pub(super) fn is_open(&self) -> bool {
        self.users.is_empty() && self.tokens.is_empty()
    }

    /// Returns whether every admitted client is authenticated.
    pub(super) fn knows_who_asks(&self) -> bool {
        !self.is_open() || self.asks_for_certificates
    }

    /// Returns the admission by the `Authorization` of a request.
    pub(super) fn admits(&self, authorization: Option<&str>) -> Admission {
        if self.is_open() {
            return Admission::Granted;
        }
        let Some((scheme, rest)) = authorization.and_then(|all| all.trim().split_once(' ')) else {
            return Admission::Refused;
        };
        let rest = rest.trim();
        if scheme.eq_ignore_ascii_case("bearer") && self.tokens.contains(&sha256(rest.as_bytes())) {
            return Admission::Granted;
        }
        let basic = scheme.eq_ignore_ascii_case("basic").then(|| self.credentials(rest)).flatten();
        basic.map_or(Admission::Refused, Admission::Password)
    }

    /// Returns the user and password of `name:password` in base64, with the hash to check it against.
    fn credentials(&self, basic: &str) -> Option<Credentials> {
        let decoded = STANDARD.decode(basic).ok().and_then(|bytes| String::from_utf8(bytes).ok())?;
        let (user, password) = decoded.split_once(':')?;
        // An unknown name takes as long.
        let hash = self.users.get(user).or(self.users.values().next())?;
        Some(Credentials {
            user: self.users.contains_key(user).then(|| user.to_owned()),
            password: password.to_owned(),
            hash: hash.clone(),
        })
    }
}

/// Parses users, and bcrypt hashes of their passwords.
fn users(value: &Yaml, key: &str) -> anyhow::Result<BTreeMap<String, String>> {
    let mut users = BTreeMap::new();
    for entry in entries(value, key) {
        let (user, hash) = entry?;
        let hash = string(hash, &format!("{key}: what `{user}` has"))?;
        // A plain password would be in the clear there.
        let Some(cost) = cost_of(hash) else {
            bail!("{key}: the value of `{user}` is not a bcrypt hash: `htpasswd -nBC 10 ''` makes one");
        };
        if cost > COST_MAX {
            bail!(
                "{key}: the hash of `{user}` has cost {cost}, at most {COST_MAX} is taken, as each check would take seconds: `htpasswd -nBC 10 ''` makes one of cost 10"
            );
        }
        users.insert(user.to_owned(), hash.to_owned());
    }
    if users.is_empty() {
        bail!("{key} has no user: add `NAME: HASH` (`htpasswd -nBC 10 ''` makes a hash), or remove the key");
    }
    Ok(users)
}

/// Returns the cost of a bcrypt hash, by its form: to check a password against it takes up to hours.
fn cost_of(hash: &str) -> Option<u32> {
    let rest = ["$2a$", "$2b$", "$2x$", "$2y$"].iter().find_map(|prefix| hash.strip_prefix(prefix))?;
    let (cost, rest) = rest.split_once('$')?;
    let (salt, sum) = rest.split_at_checked(22)?;
    let length = |text: &str| bcrypt::BASE_64.decode(text).ok().map(|bytes| bytes.len());
    let is_whole = cost.len() == 2 && length(salt) == Some(16) && length(sum) == Some(23);
    cost.parse().ok().filter(|cost| is_whole && (4..=31).contains(cost))
}

/// Parses hashes of tokens.
fn tokens(value: &Yaml, key: &str) -> anyhow::Result<Vec<Hash>> {
    let list = value.as_vec().with_context(|| format!("{key} is not a list"))?;
    let mut tokens = Vec::new();
    for hash in list {
        let hash =
            hash_of(string(hash, key)?).with_context(|| format!("{key}: not a SHA-256 in hexadecimal"))?;
        if hash == sha256(b"") {
            bail!("{key}: one is the SHA-256 of an empty token: `echo -n TOKEN | sha256sum` makes one");
        }
        tokens.push(hash);
    }
    if tokens.is_empty() {
        bail!("{key} has no token: add `- HASH` (`echo -n TOKEN | sha256sum` makes one), or remove the key");
    }
    Ok(tokens)
}

/// Parses the configuration of encryption, and whether clients need a certificate.
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
                other => bail!("unknown client_auth_type `{other}`; use RequireAndVerifyClientCert"),
            },
            "min_version" => {
                is_newest_only = match string(value, key)? {
                    "TLS13" => true,
                    "TLS12" => false,
                    other => bail!("unknown min_version `{other}`; use TLS12 or TLS13"),
                };
            }
            other => bail!("tls_server_config: unknown key `{other}`"),
        }
    }
    if files.certificates == PathBuf::new() || files.key == PathBuf::new() {
        bail!("tls_server_config needs cert_file and key_file");
    }
    let config = tls::config(&files, is_newest_only, BYTES_MAX)?;
    Ok((Some(Arc::new(config)), files.client_authorities.is_some()))
}

/// Parses 64 hexadecimal digits.
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
