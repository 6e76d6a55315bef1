//! `import_io_tables FILE SOURCE INTO`: writes the I/O tables of all platforms in the file of facts FILE.
//! `cargo xtask tables io` runs it.

use std::{
    fs,
    io::{self, Write as _},
    path::Path,
};

use pmbpf::table::io::{import::import, write};

fn main() -> anyhow::Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [file, source, into] = arguments.as_slice() else {
        anyhow::bail!("usage: import_io_tables FILE SOURCE INTO");
    };
    let mut stdout = io::stdout().lock();
    for table in import(&fs::read_to_string(file)?, source)? {
        let path = Path::new(into).join(format!("io-{}.table", table.name()));
        fs::write(&path, write(&table))?;
        let (events, metrics) = (table.model.events.len(), table.model.metrics.len());
        writeln!(stdout, "{}: {events} events, {metrics} metrics", path.display())?;
    }
    Ok(())
}
