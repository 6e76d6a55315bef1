//! Web configurations, and who may ask by them.

use std::path::Path;

use base64::{Engine as _, engine::general_purpose::STANDARD};

use super::Web;

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
