//! An I/O table as text: a head of its own, then a model's table.
//!
//! ```text
//! pmbpf io table 1
//! models    graniterapids sierraforest
//! parts     8
//! box       cha  4  config1
//! free      iio_free_running  bw_in_port0  event=0xff,umask=0x20  32  48
//! absent    ddio.read_l3_miss  %  …
//! requester dmar  filter_requester_id_en=0x1,filter_requester_id=@
//! pmbpf table 1
//! …
//! ```

use std::fmt::Write as _;

use super::{Absent, BoxKind, FreeRunning, IoTable, Requester};
use crate::table::{
    model::{self, TextError},
    unit::Unit,
};

const HEAD: &str = "pmbpf io table 1";
const MODEL: &str = "pmbpf table 1";

/// The text of `table`.
#[must_use]
pub fn write(table: &IoTable) -> String {
    let mut text = format!("{HEAD}\nmodels\t{}\nparts\t{}\n", table.models.join(" "), table.parts);
    for BoxKind { unit, counters, shared } in &table.boxes {
        let _ = writeln!(text, "box\t{unit}\t{counters}\t{}", shared.as_deref().unwrap_or("-"));
    }
    for FreeRunning { unit, name, terms, unit_bytes, width_bits } in &table.free_running {
        let _ = writeln!(text, "free\t{unit}\t{name}\t{terms}\t{unit_bytes}\t{width_bits}");
    }
    for Absent { name, unit, why } in &table.absent {
        let _ = writeln!(text, "absent\t{name}\t{}\t{why}", unit.name());
    }
    for Requester { unit, terms } in &table.requesters {
        let _ = writeln!(text, "requester\t{unit}\t{terms}");
    }
    text + &model::write(&table.model)
}

/// Reads a table.
///
/// # Errors
///
/// Names the first line that is wrong, and how.
pub fn read(text: &str) -> Result<IoTable, TextError> {
    let fail = |line: usize, what: String| TextError { line: line + 1, what };
    let mut table = IoTable::default();
    let mut rest = text;
    for number in 0_usize.. {
        let line = rest.lines().next().ok_or_else(|| fail(number, format!("there is no `{MODEL}`")))?;
        if line == MODEL && number > 0 {
            let below = |error: TextError| TextError { line: error.line + number, ..error };
            table.model = model::read(rest).map_err(below)?;
            break;
        }
        match number {
            0 if line == HEAD => {}
            0 => return Err(fail(0, format!("it does not begin with `{HEAD}`"))),
            _ => fact(&mut table, line).map_err(|what| fail(number, what))?,
        }
        rest = rest[line.len()..].trim_start_matches('\r').strip_prefix('\n').unwrap_or_default();
    }
    Ok(table)
}

fn fact(table: &mut IoTable, line: &str) -> Result<(), String> {
    let number = |text: &str| text.parse::<u32>().map_err(|_| format!("`{text}` is no number"));
    let fields: Vec<&str> = line.split('\t').collect();
    match *fields {
        ["models", names] => table.models = names.split_whitespace().map(str::to_owned).collect(),
        ["parts", count] => table.parts = number(count)?,
        ["box", unit, counters, shared] => table.boxes.push(BoxKind {
            unit: unit.to_owned(),
            counters: number(counters)?,
            shared: (shared != "-").then(|| shared.to_owned()),
        }),
        ["free", unit, name, terms, unit_bytes, width_bits] => table.free_running.push(FreeRunning {
            unit: unit.to_owned(),
            name: name.to_owned(),
            terms: terms.to_owned(),
            unit_bytes: number(unit_bytes)?,
            width_bits: number(width_bits)?,
        }),
        ["absent", name, unit, why] => {
            table.absent.push(Absent { name: name.to_owned(), unit: Unit::of(unit), why: why.to_owned() });
        }
        ["requester", unit, terms] => {
            table.requesters.push(Requester { unit: unit.to_owned(), terms: terms.to_owned() });
        }
        _ => return Err(format!("`{}` with {} fields", fields[0], fields.len() - 1)),
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::{read, write};

    const TEXT: &str = "pmbpf io table 1\nmodels\tx y\nparts\t2\nbox\tcha\t4\tconfig1\nfree\tiio_free_running\tioclk\tevent=0xff\t0\t48\n\
        absent\tio.cpu_conflicts\t%\tno event counts them\nrequester\tdmar\tid=@\npmbpf table 1\nmodel\tx\ncpus\t-\nsource\t-\nversions\t-\t-\n";

    #[test]
    fn a_table_reads_back_as_it_was_written() {
        let table = read(TEXT).unwrap();
        assert_eq!(write(&table), TEXT);
        assert_eq!((table.models.len(), table.parts, table.free_running[0].width_bits), (2, 2, 48));
        assert_eq!(table.kind("cha").unwrap().shared.as_deref(), Some("config1"));
    }

    #[test]
    fn a_broken_table_names_the_line() {
        let error = |text: &str| read(text).unwrap_err().to_string();
        assert_eq!(error("something"), "table, line 1: it does not begin with `pmbpf io table 1`");
        assert_eq!(error("pmbpf io table 1\nmodels\tx\n"), "table, line 3: there is no `pmbpf table 1`");
        assert_eq!(error("pmbpf io table 1\nbox\tiio\tmany\t-\n"), "table, line 2: `many` is no number");
        assert_eq!(error(&format!("{TEXT}event\tA")), "table, line 13: `event` with 1 fields");
    }
}
