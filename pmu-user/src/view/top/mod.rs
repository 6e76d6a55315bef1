//! Live screen (`pmbpf top`): what it keeps of each interval, the effect of keys, and the drawing. It never
//! opens a terminal, and the same code draws a live run and a recording.

mod chart;
mod choice;
mod detail;
mod draw;
mod history;
mod io;
mod lines;
mod owners;
mod panes;
mod row;
mod snapshot;
mod state;
#[cfg(test)]
mod tests;

pub use self::{
    choice::{Action, Key, Looks, Mode},
    draw::draw,
    history::History,
    snapshot::Snapshot,
    state::State,
};
