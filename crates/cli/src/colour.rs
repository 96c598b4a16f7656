//! Colours, for people who look at a terminal.

use std::io::{IsTerminal, stdout};

/// Whether standard output is a terminal, and `NO_COLOR` is not set (<https://no-color.org>).
pub(crate) fn wanted() -> bool {
    let is_set = |name| std::env::var_os(name).is_some_and(|v| !v.is_empty());
    let is_dumb = std::env::var_os("TERM").is_some_and(|t| t == "dumb");
    stdout().is_terminal() && !is_set("NO_COLOR") && !is_dumb
}

/// The text of a cluster's health, coloured like a traffic light.
pub(crate) fn health(text: &str) -> String {
    let colour = match text.split([' ', ':']).next() {
        Some("HEALTH_OK") => 32,
        Some("HEALTH_WARN") => 33,
        Some("HEALTH_ERR") => 31,
        _ => return text.to_owned(),
    };
    format!("\x1b[{colour}m{text}\x1b[0m")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn health_has_the_colour_of_a_traffic_light() {
        assert_eq!(health("HEALTH_OK"), "\x1b[32mHEALTH_OK\x1b[0m");
        assert_eq!(
            health("HEALTH_WARN 1 osds down"),
            "\x1b[33mHEALTH_WARN 1 osds down\x1b[0m"
        );
        assert_eq!(health("unknown"), "unknown");
    }
}
