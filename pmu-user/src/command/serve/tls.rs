//! Encrypted connections: rustls, with cryptography in Rust alone.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use anyhow::{Context as _, bail};
use rustls::{
    RootCertStore, ServerConfig,
    crypto::CryptoProvider,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject as _},
    server::WebPkiClientVerifier,
    version::{TLS12, TLS13},
};

use crate::file;

/// Files of certificates and keys, in PEM.
#[derive(Debug, Default)]
pub(super) struct Files {
    /// Own certificate, and those between it and an authority.
    pub(super) certificates: PathBuf,
    /// Private key of the certificate.
    pub(super) key: PathBuf,
    /// Authorities of the clients' certificates, if clients need one.
    pub(super) client_authorities: Option<PathBuf>,
}

/// Returns the configuration of encrypted connections.
///
/// # Errors
///
/// A file cannot be read or holds something else; or this processor lacks instructions for the cryptography.
pub(super) fn config(files: &Files, is_newest_only: bool, bytes_max: u64) -> anyhow::Result<ServerConfig> {
    if !has_instructions() {
        bail!(
            "TLS takes a processor with AES, AVX2, BMI2 and ADX (amd64), or AES and SHA2 (arm64): use a proxy in front"
        );
    }
    let provider = Arc::new(rustls_graviola::default_provider());
    let certificates = certificates(&files.certificates, bytes_max)?;
    let key = read(&files.key, bytes_max)?;
    let key = PrivateKeyDer::from_pem_slice(&key)
        .map_err(|error| anyhow::anyhow!("{}: {error}", files.key.display()))?;
    let versions: &[_] = if is_newest_only { &[&TLS13] } else { &[&TLS13, &TLS12] };
    let builder =
        ServerConfig::builder_with_provider(Arc::clone(&provider)).with_protocol_versions(versions)?;
    let builder = match &files.client_authorities {
        None => builder.with_no_client_auth(),
        Some(path) => builder.with_client_cert_verifier(clients(path, bytes_max, &provider)?),
    };
    builder
        .with_single_cert(certificates, key)
        .with_context(|| format!("{} and {}", files.certificates.display(), files.key.display()))
}

fn clients(
    path: &Path,
    bytes_max: u64,
    provider: &Arc<CryptoProvider>,
) -> anyhow::Result<Arc<dyn rustls::server::danger::ClientCertVerifier>> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates(path, bytes_max)? {
        roots.add(certificate).with_context(|| path.display().to_string())?;
    }
    let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), Arc::clone(provider));
    verifier.build().with_context(|| path.display().to_string())
}

fn certificates(path: &Path, bytes_max: u64) -> anyhow::Result<Vec<CertificateDer<'static>>> {
    let text = read(path, bytes_max)?;
    let all = CertificateDer::pem_slice_iter(&text).collect::<Result<Vec<_>, _>>();
    let all = all.map_err(|error| anyhow::anyhow!("{}: {error}", path.display()))?;
    if all.is_empty() {
        bail!("{} has no certificate", path.display());
    }
    Ok(all)
}

fn read(path: &Path, bytes_max: u64) -> anyhow::Result<Vec<u8>> {
    file::read_regular(path, bytes_max).with_context(|| format!("cannot read {}", path.display()))
}

/// Returns whether this processor has the instructions for the cryptography. Without them, it would end the
/// process.
fn has_instructions() -> bool {
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::is_x86_feature_detected as has;
        has!("aes")
            && has!("ssse3")
            && has!("avx")
            && has!("avx2")
            && has!("adx")
            && has!("bmi2")
            && has!("pclmulqdq")
    }
    #[cfg(target_arch = "aarch64")]
    {
        use std::arch::is_aarch64_feature_detected as has;
        has!("aes") && has!("sha2") && has!("pmull") && has!("neon")
    }
}
