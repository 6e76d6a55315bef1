//! Reload on SIGHUP: the web configuration with its certificates, and the settings that may change while a
//! server runs. It has a separate thread that may read root's files, and does nothing else. The thread that
//! serves clients may not read them.

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
    /// Returns the settings that are to be in force from now on, if there are any.
    pub(super) fn take(&self) -> Option<Settings> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

/// Reader of the files that SIGHUP reloads.
pub(super) struct Reloader {
    /// Settings of the options.
    pub(super) options: Settings,
    pub(super) measured: Measured,
    pub(super) file: Option<PathBuf>,
}

impl Reloader {
    /// Begins to wait for SIGHUP, with the privileges of this thread. The site is sent later, because its
    /// answers are made later. New settings are put into `changed`.
    pub(super) fn begin(self, changed: Arc<Changed>) -> anyhow::Result<Sender<Arc<Site>>> {
        let (sender, receiver) = channel::<Arc<Site>>();
        Builder::new().name("reload".to_owned()).spawn(move || {
            confine(Duty::Reread);
            let (Ok(site), Ok(runtime)) = (receiver.recv(), runtime()) else { return };
            runtime.block_on(async {
                // For a service, SIGHUP means that its files are to be read again.
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
            Err(error) => output::talk(&format!("the previous settings stay in force: {error:#}")),
        }
    }
}
