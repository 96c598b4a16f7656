//! `ceph -w`: the cluster log as it is written.

use std::io::Write;

use spirula_client::Rados;
use spirula_proto::mon::LogEntry;
use spirula_text::time;

/// A log entry as `ceph -w` prints it.
fn line(e: &LogEntry) -> String {
    let kind = u8::try_from(e.name.kind).map(spirula_denc::EntityType);
    let kind = kind.map_or("unknown", |k| k.name());
    format!(
        "{} {kind}.{} {} {}",
        time::local(e.stamp),
        e.name.id,
        e.priority,
        e.message
    )
}

/// Prints the entries of a channel from now on until the session ends or the user interrupts.
pub(crate) async fn run(rados: &Rados, level: &str, channel: &str) {
    let mut log = rados.watch_log(&format!("log-{level}"));
    let mut newest = 0;
    loop {
        let message = tokio::select! {
            message = log.recv() => message,
            _ = tokio::signal::ctrl_c() => None,
        };
        let Some(message) = message else { return };
        // The last entries come again with every new session.
        if message.paxos.0 <= newest {
            continue;
        }
        newest = message.paxos.0;
        let mut out = std::io::stdout().lock();
        for entry in message
            .entries
            .iter()
            .filter(|e| channel == "*" || e.channel == channel)
        {
            if writeln!(out, "{}", line(entry))
                .and_then(|()| out.flush())
                .is_err()
            {
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use spirula_denc::UTime;
    use spirula_proto::mon::{LogPriority, NamedEntity};

    use super::*;

    #[test]
    fn entries_print_time_name_priority_and_text() {
        let entry = LogEntry {
            name: NamedEntity {
                kind: 1,
                id: "a".into(),
            },
            stamp: UTime {
                sec: 1_795_255_241,
                nsec: 5000,
            },
            priority: LogPriority::INFO,
            message: "hello".into(),
            ..LogEntry::default()
        };
        assert!(line(&entry).ends_with(" mon.a [INF] hello"), "{}", line(&entry));
    }
}
