//! What `spirula up` shows: a spinner at a terminal, plain lines elsewhere.

use std::borrow::Cow;
use std::io::IsTerminal;
use std::path::Path;
use std::time::Duration;

use indicatif::ProgressBar;

use crate::layout::Layout;

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
            None => eprintln!("{line}"),
        }
    }

    /// A warning, which stays too.
    pub(crate) fn warn(&self, line: String) {
        self.step(format!("Warning: {line}"));
    }

    /// What is being waited for; only shown at a terminal.
    pub(crate) fn wait(&self, what: &str) {
        if let Some(bar) = &self.bar {
            bar.set_message(format!("waiting: {what}"));
        }
    }

    /// The cluster is up: says how long that took and what to type next.
    pub(crate) fn done(&self, layout: &Layout, took: Duration, (health, summaries): &super::Health) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
        let conf = layout.conf();
        let quoted = |path: &Path| {
            let text = path.display().to_string();
            shlex::try_quote(&text).map_or(text.clone(), Cow::into_owned)
        };
        let health = [std::slice::from_ref(health), summaries].concat().join("\n");
        eprintln!(
            "Up after {:.1} s: {health}\nNext:\n\
             \n    export CEPH_CONF={}\
             \n    ceph -s                            # or: spirula ceph -s\
             \n    ceph osd pool create mypool\
             \n    rados -p mypool put hello /etc/hostname\
             \n    spirula down --dir {}",
            took.as_secs_f64(),
            quoted(&conf),
            quoted(layout.root()),
        );
    }
}
