//! Tests of web configurations, and of the clients that they admit.

use std::{
    path::Path,
    sync::Arc,
    time::{Duration, Instant},
};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use rustls::{
    ClientConfig, ClientConnection, ConnectionCommon, RootCertStore, ServerConnection, SideData,
    pki_types::{CertificateDer, pem::PemObject as _},
};

use super::{Admission, Web};

/// A certificate for `localhost` and its key, which guard nothing.
const FIXTURES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/src/command/serve/web/fixtures");

fn web(text: &str) -> anyhow::Result<Web> {
    Web::parse(text.as_bytes(), Path::new("/nowhere"))
}

fn basic(text: &str) -> String {
    format!("Basic {}", STANDARD.encode(text))
}

/// Returns a hash of `secret`, at the lowest cost.
fn hash() -> String {
    bcrypt::hash("secret", 4).unwrap()
}

/// Returns whether the site answers a request with this `Authorization`.
fn admits(web: &Web, authorization: Option<&str>) -> bool {
    match web.admits(authorization) {
        Admission::Granted => true,
        Admission::Refused => false,
        Admission::Password(credentials) => credentials.are_right(),
    }
}

#[test]
fn a_configuration_without_users_and_tokens_is_refused() {
    for (text, says) in [
        ("", "no users, tokens or certificate"),
        ("---\n", "no users, tokens or certificate"),
        ("# basic_auth_users\n", "no users, tokens or certificate"),
        ("~", "no users, tokens or certificate"),
        ("{}", "no users, tokens or certificate"),
        ("basic_auth_users:\n", "basic_auth_users has no user"),
        ("basic_auth_users: {}", "basic_auth_users has no user"),
        ("basic_auth_users: ~", "basic_auth_users has no user"),
        ("bearer_tokens_sha256: []", "bearer_tokens_sha256 has no token"),
        ("bearer_tokens_sha256:", "bearer_tokens_sha256 is not a list"),
        // echo -n "" | sha256sum
        (
            "bearer_tokens_sha256: [e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855]",
            "empty token",
        ),
    ] {
        let error = format!("{:#}", web(text).err().unwrap_or_else(|| panic!("{text} is taken")));
        assert!(error.contains(says), "{text}: {error}");
    }
    let one_key = format!("basic_auth_users:\n  alice: '{}'\nbearer_tokens_sha256: []\n", hash());
    assert!(web(&one_key).is_err());
}

#[test]
fn a_configuration_that_asks_for_less_does_not_replace_another() {
    let tls = "tls_server_config: {cert_file: server.pem, key_file: server.key}\n";
    let clients = tls.replace('}', ", client_ca_file: server.pem}");
    let users = format!("basic_auth_users: {{alice: '{}'}}\n", hash());
    let [open, tls_alone, users_alone, both, certificates] =
        ["", tls, &users, &format!("{tls}{users}"), &clients]
            .map(|text| if text.is_empty() { Web::default() } else { web_of_fixtures(text).unwrap() });
    for (before, after, is_refused) in [
        (&open, &tls_alone, false),
        (&users_alone, &both, false),
        (&both, &users_alone, true),
        (&both, &tls_alone, true),
        (&both, &certificates, false),
        (&certificates, &tls_alone, true),
        (&users_alone, &tls_alone, true),
        (&users_alone, &open, true),
    ] {
        assert_eq!(after.opens(before).is_some(), is_refused, "{before:?} -> {after:?}");
    }
}

#[test]
fn yaml_that_grows_or_is_too_deep_is_refused_before_anything_is_made_of_it() {
    let mut bomb = "a0: &a0 [x,x,x,x,x,x,x,x,x,x]\n".to_owned();
    for level in 1..9 {
        let below = level - 1;
        bomb += &format!("a{level}: &a{level} [{}]\n", format!("*a{below},").repeat(10));
    }
    let hash = hash();
    for (text, says) in [
        (bomb.as_str(), "an alias"),
        (&format!("x: &x '{hash}'\nbasic_auth_users: {{a: *x}}"), "an alias"),
        (&format!("x: {}", "[".repeat(100)), "more than 8"),
        (&format!("x: [{}]", "a,".repeat(70_000)), "more than 65536 values"),
        (&format!("basic_auth_users: {{a: '{hash}'}}\n---\nbasic_auth_users: {{}}\n"), "2 documents"),
    ] {
        let error = format!("{:#}", web(text).err().unwrap_or_else(|| panic!("{text} is taken")));
        assert!(error.contains(says), "{error}");
    }
    // An unused anchor is only a name.
    assert!(web(&format!("basic_auth_users: &users {{a: '{hash}'}}")).is_ok());
}

#[test]
fn a_hash_that_would_take_seconds_to_check_is_refused_unchecked() {
    let hash = hash();
    let begun = Instant::now();
    for cost in [15, 20, 31] {
        let costly = hash.replace("$04$", &format!("${cost}$"));
        let error = format!("{:#}", web(&format!("basic_auth_users: {{a: '{costly}'}}")).err().unwrap());
        assert!(error.contains("`a`") && error.contains(&format!("cost {cost}, at most 14")), "{error}");
    }
    let many: String =
        (0..500).map(|number| format!("  u{number}: '{}'\n", hash.replace("$04$", "$14$"))).collect();
    assert!(web(&format!("basic_auth_users:\n{many}")).is_ok());
    assert!(begun.elapsed() < Duration::from_secs(5), "500 checks of cost 14 take minutes");
    for wrong in ["$2y$04$short", "$2z$04$", "$2y$4$", "$2y$04", ""] {
        let hash = wrong.to_owned() + if wrong.ends_with('$') { &hash[7..] } else { "" };
        assert!(web(&format!("basic_auth_users: {{a: '{hash}'}}")).is_err(), "{hash}");
    }
}

#[test]
fn a_user_is_known_by_name_and_password() {
    let web = web(&format!("basic_auth_users:\n  alice: '{}'\n", hash())).unwrap();
    assert!(admits(&web, Some(&basic("alice:secret"))));
    for wrong in ["alice:Secret", "alice:", "bob:secret", "alice", ":secret", "alice:secret:"] {
        assert!(!admits(&web, Some(&basic(wrong))), "{wrong}");
    }
    for wrong in ["", "Basic", "Basic !!", "Bearer secret", "alice:secret", "Basic \u{fffd}"] {
        assert!(!admits(&web, Some(wrong)), "{wrong}");
    }
    assert!(!admits(&web, None));
}

#[test]
fn a_token_is_known_by_its_hash() {
    // echo -n token | sha256sum
    let hash = "3c469e9d6c5875d37a43f353d4f88e61fcf812c66eee3457465a40b0da4153e0";
    let web = web(&format!("bearer_tokens_sha256: ['{hash}']")).unwrap();
    assert!(admits(&web, Some("Bearer token")) && admits(&web, Some("bearer  token ")));
    assert!(
        !admits(&web, Some("Bearer tokens"))
            && !admits(&web, Some(&format!("Bearer {hash}")))
            && !admits(&web, None)
    );
}

#[test]
fn what_is_not_understood_is_named() {
    for (text, says) in [
        ("users: {}", "unknown key `users`"),
        ("basic_auth_users: [a]", "not a mapping"),
        ("basic_auth_users: {a: secret}", "not a bcrypt hash"),
        ("basic_auth_users: {a: 1}", "`a`"),
        ("bearer_tokens_sha256: [xyz]", "SHA-256"),
        (
            "bearer_tokens_sha256: [3c469e9d6c5875d37a43f353d4f88e61fcf812c66eee3457465a40b0da4153+0]",
            "SHA-256",
        ),
        ("bearer_tokens_sha256: abc", "not a list"),
        ("- a", "not a mapping"),
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

/// Returns a client that trusts the certificate of the fixtures alone.
fn client() -> ClientConnection {
    let certificate = CertificateDer::from_pem_file(Path::new(FIXTURES).join("server.pem")).unwrap();
    let mut roots = RootCertStore::empty();
    roots.add(certificate).unwrap();
    let provider = Arc::new(rustls_graviola::default_provider());
    let config = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
    let config = config.with_root_certificates(roots).with_no_client_auth();
    ClientConnection::new(Arc::new(config), "localhost".try_into().unwrap()).unwrap()
}

/// Passes the output of one side to the other.
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

/// Returns the result of a handshake with a site of this configuration.
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
