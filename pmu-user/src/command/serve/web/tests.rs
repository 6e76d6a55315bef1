//! Web configurations, and who may ask by them.

use std::{path::Path, sync::Arc};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use rustls::{
    ClientConfig, ClientConnection, ConnectionCommon, RootCertStore, ServerConnection, SideData,
    pki_types::{CertificateDer, pem::PemObject as _},
};

use super::Web;

/// A certificate for `localhost` and its key, which guard nothing.
const FIXTURES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/src/command/serve/web/fixtures");

fn web(text: &str) -> anyhow::Result<Web> {
    Web::parse(text.as_bytes(), Path::new("/nowhere"))
}

fn basic(text: &str) -> String {
    format!("Basic {}", STANDARD.encode(text))
}

/// Of `secret`, at the lowest cost.
fn hash() -> String {
    bcrypt::hash("secret", 4).unwrap()
}

#[test]
fn without_users_and_tokens_everybody_may_ask() {
    for text in ["", "---\n", "basic_auth_users:\n", "basic_auth_users: {}"] {
        let web = web(text).unwrap();
        assert!(web.admits(None) && web.admits(Some("Basic nonsense")), "{text}");
    }
}

#[test]
fn a_user_is_known_by_name_and_password() {
    let web = web(&format!("basic_auth_users:\n  alice: '{}'\n", hash())).unwrap();
    assert!(web.admits(Some(&basic("alice:secret"))));
    assert!(web.admits(Some(&basic("alice:secret"))), "what was right is remembered");
    for wrong in ["alice:Secret", "alice:", "bob:secret", "alice", ":secret", "alice:secret:"] {
        assert!(!web.admits(Some(&basic(wrong))), "{wrong}");
    }
    for wrong in ["", "Basic", "Basic !!", "Bearer secret", "alice:secret", "Basic \u{fffd}"] {
        assert!(!web.admits(Some(wrong)), "{wrong}");
    }
    assert!(!web.admits(None));
}

#[test]
fn a_token_is_known_by_its_hash() {
    // echo -n token | sha256sum
    let hash = "3c469e9d6c5875d37a43f353d4f88e61fcf812c66eee3457465a40b0da4153e0";
    let web = web(&format!("bearer_tokens_sha256: ['{hash}']")).unwrap();
    assert!(web.admits(Some("Bearer token")) && web.admits(Some("bearer  token ")));
    assert!(
        !web.admits(Some("Bearer tokens"))
            && !web.admits(Some(&format!("Bearer {hash}")))
            && !web.admits(None)
    );
}

#[test]
fn what_is_not_understood_is_named() {
    for (text, says) in [
        ("users: {}", "`users` is not known here"),
        ("basic_auth_users: [a]", "no mapping"),
        ("basic_auth_users: {a: secret}", "no hash of bcrypt"),
        ("basic_auth_users: {a: 1}", "`a`"),
        ("bearer_tokens_sha256: [xyz]", "SHA-256"),
        (
            "bearer_tokens_sha256: [3c469e9d6c5875d37a43f353d4f88e61fcf812c66eee3457465a40b0da4153+0]",
            "SHA-256",
        ),
        ("bearer_tokens_sha256: abc", "no list"),
        ("- a", "no mapping"),
        ("{", ""),
        ("tls_server_config: {cert_file: a.pem}", "cert_file and key_file"),
        ("tls_server_config: {cert_file: a.pem, key_file: b.pem}", "cannot read /nowhere/a.pem"),
        ("tls_server_config: {min_version: TLS10}", "TLS12"),
        ("tls_server_config: {cipher: x}", "`cipher`"),
    ] {
        let error = format!("{:#}", web(text).err().unwrap_or_else(|| panic!("{text} is taken")));
        assert!(error.contains(says), "{text}: {error}");
    }
}

/// A client that trusts the certificate of the fixtures alone.
fn client() -> ClientConnection {
    let certificate = CertificateDer::from_pem_file(Path::new(FIXTURES).join("server.pem")).unwrap();
    let mut roots = RootCertStore::empty();
    roots.add(certificate).unwrap();
    let provider = Arc::new(rustls_graviola::default_provider());
    let config = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
    let config = config.with_root_certificates(roots).with_no_client_auth();
    ClientConnection::new(Arc::new(config), "localhost".try_into().unwrap()).unwrap()
}

/// Gives one side what the other has to say.
fn pass<A: SideData, B: SideData>(
    from: &mut ConnectionCommon<A>,
    to: &mut ConnectionCommon<B>,
) -> Result<(), rustls::Error> {
    let mut bytes = Vec::new();
    while from.wants_write() {
        from.write_tls(&mut bytes).unwrap();
    }
    let mut rest = bytes.as_slice();
    while !rest.is_empty() {
        to.read_tls(&mut rest).unwrap();
        to.process_new_packets()?;
    }
    Ok(())
}

/// What a handshake with a site of this configuration comes to.
fn handshake(text: &str) -> Result<(), rustls::Error> {
    let web = web_of_fixtures(text).unwrap();
    let (mut client, mut server) = (client(), ServerConnection::new(web.tls.unwrap()).unwrap());
    for _ in 0..4 {
        pass(&mut client, &mut server)?;
        pass(&mut server, &mut client)?;
    }
    assert!(!client.is_handshaking() && !server.is_handshaking());
    Ok(())
}

#[test]
fn connections_are_encrypted_with_the_certificate_that_is_named() {
    handshake("tls_server_config: {cert_file: server.pem, key_file: server.key}").unwrap();
    handshake("tls_server_config: {cert_file: server.pem, key_file: server.key, min_version: TLS13}")
        .unwrap();
    let asks_for_one =
        "tls_server_config: {cert_file: server.pem, key_file: server.key, client_ca_file: server.pem}";
    assert!(handshake(asks_for_one).is_err(), "the client has no certificate");
    for wrong in
        ["cert_file: server.key, key_file: server.key", "cert_file: server.pem, key_file: server.pem"]
    {
        assert!(web_of_fixtures(&format!("tls_server_config: {{{wrong}}}")).is_err(), "{wrong}");
    }
}

fn web_of_fixtures(text: &str) -> anyhow::Result<Web> {
    Web::parse(text.as_bytes(), Path::new(FIXTURES))
}
