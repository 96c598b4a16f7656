//! `ceph` without a command: commands from standard input, a line each.

use std::io::{self, BufRead, IsTerminal, Write};

use super::common::name_of;
use super::exec::{Executor, print};
use super::options::Options;
use super::target::{self, Target};

/// Reads and runs commands until the input ends; the exit code is that of the connection, 0.
pub(crate) async fn run(executor: &Executor<'_>, target: &Target) -> i32 {
    let commands = match executor.descriptions(target).await {
        Ok(commands) => commands,
        Err(refusal) => {
            eprintln!(
                "Error {}: problem getting command descriptions from {target}",
                name_of(refusal.result)
            );
            return -refusal.result;
        }
    };
    let terminal = io::stdin().is_terminal();
    loop {
        if terminal {
            print!("ceph> ");
            let _ = io::stdout().flush();
        }
        let mut line = String::new();
        match io::stdin().lock().read_line(&mut line) {
            Ok(0) | Err(_) => return 0,
            Ok(_) => {}
        }
        let line = line.trim_end();
        match line {
            "" => continue,
            "q" | "quit" | "Q" | "exit" if terminal => return 0,
            _ => {}
        }
        let Some(words) = shlex::split(line) else {
            eprintln!("No closing quotation");
            continue;
        };
        let Ok(Options { words, .. }) = Options::parse(words) else {
            eprintln!("a command takes no options of the tool here");
            continue;
        };
        match target::of(&words) {
            Ok(_) if words.first().is_some_and(|w| w == "tell") => {
                eprintln!("Can not use 'tell' in interactive mode.");
                continue;
            }
            Ok(_) => {}
            Err(e) => {
                eprintln!("error handling command target: {e}");
                continue;
            }
        }
        let reply = executor.run(target, &commands, &words).await;
        if reply.result < 0 {
            eprintln!("Error {}: {}", name_of(reply.result), reply.status);
            continue;
        }
        if !reply.status.is_empty() {
            eprintln!("{}", reply.status);
        }
        if !reply.output.is_empty() {
            print(&[&reply.output[..], b"\n"].concat());
        }
    }
}
