//! `import_tables DIR SOURCE INTO [NAME…]`: writes the tables of all built-in models that the perfmon directory DIR has, and of these, which
//! will be. Those of a hybrid's cores, `alderlake/cpu_core`, come into a folder of its name. `cargo xtask tables import` runs it.

use std::{
    fs,
    io::{self, Write as _},
    path::Path,
};

use pmbpf::table::{model, perfmon};

fn main() -> anyhow::Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [folder, source, into, new @ ..] = arguments.as_slice() else {
        anyhow::bail!("usage: import_tables DIR SOURCE INTO [NAME…]");
    };
    let mut stdout = io::stdout().lock();
    for files in perfmon::list(Path::new(folder))? {
        if !model::KNOWN.iter().any(|(known, _)| *known == files.name) && !new.contains(&files.name) {
            continue;
        }
        let model = files.read(source)?;
        if let Some(fault) = model.faults().first() {
            anyhow::bail!("{}: {fault}", model.name);
        }
        let path = Path::new(into).join(format!("{}.table", model.name));
        fs::create_dir_all(path.parent().unwrap_or(Path::new(into)))?;
        fs::write(&path, model::write(&model))?;
        let (events, metrics) = (model.events.len(), model.metrics.len());
        writeln!(stdout, "{}: {events} events, {metrics} metrics", path.display())?;
    }
    Ok(())
}
