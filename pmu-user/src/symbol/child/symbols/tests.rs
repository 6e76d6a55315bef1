//! Symbols of this program itself, and the ranking of two symbols.

use std::collections::HashMap;

use object::{Object as _, ObjectSection as _, ObjectSymbol as _, read::Symbol};

use super::{Binding, Rank, SymbolKind, Why, is_mark, parse, symbols};
use crate::symbol::child::elf::identity;

/// Returns the bytes of this program itself.
fn program() -> Vec<u8> {
    std::fs::read("/proc/self/exe").unwrap()
}

#[test]
fn an_offset_is_the_function_s_around_it() {
    let program = program();
    let file = parse(&program).unwrap();
    let text = file.section_by_name(".text").unwrap();
    let (start, _) = text.file_range().unwrap();
    let is_function = |symbol: &Symbol<'_, '_>| symbol.kind() == SymbolKind::Text && symbol.size() > 16;
    let functions = file.symbols().filter(is_function);
    let functions: Vec<_> =
        functions.filter(|symbol| symbol.section_index() == Some(text.index())).take(200).collect();
    assert!(functions.len() > 100);
    let ends = |symbol: &Symbol<'_, '_>| {
        let offset = symbol.address() - text.address() + start;
        [offset, offset + symbol.size() - 1]
    };
    let found = symbols(&program, None, &[], &functions.iter().flat_map(ends).collect::<Vec<_>>()).unwrap();
    // Several symbols may begin at one address.
    let mut names: HashMap<u64, Vec<&[u8]>> = HashMap::new();
    for symbol in file.symbols() {
        names.entry(symbol.address()).or_default().push(symbol.name_bytes().unwrap());
    }
    for (symbol, found) in functions.iter().zip(found.chunks(2)) {
        let known = &names[&symbol.address()];
        let is_known = found.iter().all(|name| known.contains(&&name.as_ref().unwrap()[..]));
        assert!(is_known, "{found:?} is not {:?}", symbol.name());
    }
}

#[test]
fn what_is_no_elf_file_is_damaged() {
    for bytes in [&b""[..], b"\x7fELF", b"#!/bin/sh\n", &program()[..100]] {
        assert!(matches!(symbols(bytes, None, &[], &[0]), Err(Why::Damaged)) && identity(bytes).is_err());
    }
}

#[test]
fn an_offset_outside_of_every_segment_has_no_function() {
    let program = program();
    assert_eq!(symbols(&program, None, &[], &[u64::MAX]).unwrap(), [Err(Why::Outside)]);
}

#[test]
fn the_later_the_more_visible_and_the_plainer_the_better() {
    let best = |names: [(u64, Binding, &'static str); 2]| {
        names.into_iter().max_by_key(|&(start, binding, name)| Rank::of(start, binding, name.as_bytes()))
    };
    use Binding::{Global, Local, Weak};
    assert_eq!(best([(8, Weak, "inner"), (0, Global, "outer")]).unwrap().2, "inner");
    assert_eq!(best([(0, Weak, "getpid"), (0, Local, "__GI_getpid")]).unwrap().2, "__GI_getpid");
    assert_eq!(best([(0, Global, "__getpid"), (0, Local, "__GI_getpid")]).unwrap().2, "__getpid");
    assert_eq!(best([(0, Global, "_exit"), (0, Global, "exit")]).unwrap().2, "exit");
}

#[test]
fn marks_between_code_and_data_are_no_names_and_other_names_with_a_dollar_are() {
    for mark in ["$x", "$d", "$a", "$t", "$x.17", "$d.realdata"] {
        assert!(is_mark(mark.as_bytes()), "{mark}");
    }
    for name in ["$s4shop4CartC5totalSiyF", "$", "$xyz", "$dump", "x", "$t_1"] {
        assert!(!is_mark(name.as_bytes()), "{name}");
    }
}
