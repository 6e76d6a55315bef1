//! Reads again what SIGHUP is for: the web configuration with its certificates, and what may change while a server runs. On a thread of its
//! own that may read what is root's alone, and does nothing else: who answers strangers may not.

use std::{
    path::PathBuf,
    sync::{
        Arc, Mutex, PoisonError,
        mpsc::{Sender, channel},
    },
    thread::Builder,
};

use tokio::signal::unix::{SignalKind, signal};

use super::{config::Settings, flight::Measured, http::Site};
use crate::{
    command::output,
    session::{
        confine::{Duty, confine},
        runtime,
    },
};

/// Settings that have been read and are not in force yet.
#[derive(Debug, Default)]
pub(super) struct Changed(Mutex<Option<Settings>>);

impl Changed {
    /// Those that are to be in force from now on, if there are any.
    pub(super) fn take(&self) -> Option<Settings> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

/// What is read again.
pub(super) struct Reloader {
    /// Those of the options.
    pub(super) options: Settings,
    pub(super) measured: Measured,
    pub(super) file: Option<PathBuf>,
}

impl Reloader {
    /// Begins to wait for SIGHUP, with the rights that this thread has: the site comes later, as what it answers with does. What comes of
    /// the settings is put there.
    pub(super) fn begin(self, changed: Arc<Changed>) -> anyhow::Result<Sender<Arc<Site>>> {
        let (sender, receiver) = channel::<Arc<Site>>();
        Builder::new().name("reload".to_owned()).spawn(move || {
            confine(Duty::Reread);
            let (Ok(site), Ok(runtime)) = (receiver.recv(), runtime()) else { return };
            runtime.block_on(async {
                // For a service SIGHUP means that its files are to be read again.
                let Ok(mut hangup) = signal(SignalKind::hangup()) else { return };
                while hangup.recv().await.is_some() {
                    site.reload();
                    self.reload(&changed);
                }
            });
        })?;
        Ok(sender)
    }

    /// Reads the settings again; a file with a fault changes nothing.
    fn reload(&self, changed: &Changed) {
        let Some(file) = &self.file else { return };
        match self.options.with(file, self.measured) {
            Ok(settings) => {
                *changed.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(settings);
                output::talk(&format!("{} is in force from the next interval on", file.display()));
            }
            Err(error) => output::talk(&format!("what was in force stays so: {error:#}")),
        }
    }
}
