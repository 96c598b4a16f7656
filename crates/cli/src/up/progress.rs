//! The output of `spirula up`: a spinner at a terminal, plain lines elsewhere.

use std::borrow::Cow;
use std::io::IsTerminal;
use std::path::Path;
use std::time::Duration;

use indicatif::ProgressBar;

use super::{Outcome, Room, rooms};
use crate::error::Error;
use crate::layout::{Layout, Spec};

/// A path as a shell takes it.
pub(crate) fn quoted(path: &Path) -> String {
    let text = path.display().to_string();
    shlex::try_quote(&text).map_or(text.clone(), Cow::into_owned)
}

/// Writes a line to standard error. A closed pipe does not end `up`.
fn say(line: &str) {
    use std::io::Write;
    let _ = writeln!(std::io::stderr(), "{line}");
}

/// The progress display.
pub(crate) struct Progress {
    bar: Option<ProgressBar>,
}

impl Progress {
    pub(crate) fn new() -> Self {
        let bar = std::io::stderr().is_terminal().then(ProgressBar::new_spinner);
        if let Some(bar) = &bar {
            bar.enable_steady_tick(Duration::from_millis(100));
        }
        Self { bar }
    }

    /// A line that stays.
    pub(crate) fn step(&self, line: String) {
        match &self.bar {
            Some(bar) => bar.println(line),
            None => say(&line),
        }
    }

    /// A warning, which stays too.
    pub(crate) fn warn(&self, line: String) {
        self.step(format!("Warning: {line}"));
    }

    /// Shows what `up` waits for; only at a terminal.
    pub(crate) fn wait(&self, what: &str) {
        if let Some(bar) = &self.bar {
            bar.set_message(format!("waiting: {what}"));
        }
    }

    /// The cluster is up: says how long that took and what to type next.
    ///
    /// # Errors
    /// Where daemons of it do not start.
    pub(super) fn done(
        &self,
        layout: &Layout,
        spec: &Spec,
        took: Duration,
        outcome: Outcome,
    ) -> Result<(), Error> {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
        for warning in rooms(layout, spec).iter().filter_map(Room::warning) {
            self.warn(warning);
        }
        let copies = outcome.copies.map_or_else(String::new, |what| {
            format!("\n    Copies are still being made ({what}); clients can go on")
        });
        say(&format!(
            "Up after {:.1} s: {}{copies}\nNext:\n\
             \n    export CEPH_CONF={}\
             \n    ceph -s                            # or: spirula ceph -s\
             \n    ceph osd pool create mypool\
             \n    rados -p mypool put hello /etc/hostname\
             \n    spirula down --dir {}",
            took.as_secs_f64(),
            outcome.health,
            quoted(&layout.conf()),
            quoted(layout.root()),
        ));
        match outcome.failures.is_empty() {
            true => Ok(()),
            false => Err(Error::Daemon(outcome.failures.join("; "))),
        }
    }
}
