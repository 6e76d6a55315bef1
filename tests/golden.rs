//! Command line against files that are reviewed like code: help, errors, exit codes, dry runs. Needs no
//! privilege.
//!
//! `TRYCMD=overwrite cargo test --test golden` rewrites them. Read the difference before you commit it.

#[test]
fn the_command_line_says_what_it_said() {
    let cases = trycmd::TestCases::new();
    cases.env("NO_COLOR", "1").env("LC_ALL", "C.UTF-8").env("COLUMNS", "100");
    cases.case("../tests/golden/*.trycmd");
}
