//! Completions for shells, and man pages, made of clap's definitions.

use std::io::stdout;
use std::path::{Path, PathBuf};

use clap::{Command, CommandFactory};
use clap_complete::Shell;

use crate::{Cli, Error, rbd};

/// Print completions for a shell
///
/// For example: spirula completions bash >/usr/share/bash-completion/completions/spirula
#[derive(Debug, clap::Args)]
pub(crate) struct CompletionArgs {
    /// Which one
    shell: Shell,
}

/// Write man pages, one for each command
#[derive(Debug, clap::Args)]
pub(crate) struct ManArgs {
    /// The directory that they go to
    dir: PathBuf,
}

/// The whole command line, with that of tools which parse their arguments themselves.
fn command_line() -> Command {
    Cli::command().mut_subcommand("rbd", |_| rbd::command())
}

/// Prints completions.
pub(crate) fn completions(args: CompletionArgs) {
    clap_complete::generate(args.shell, &mut command_line(), "spirula", &mut stdout());
}

/// Writes man pages.
pub(crate) fn man(args: &ManArgs) -> Result<(), Error> {
    write(&args.dir).map_err(|source| Error::Path {
        what: "write man pages to",
        path: args.dir.clone(),
        source,
    })
}

fn write(dir: &Path) -> std::io::Result<()> {
    std::fs::create_dir_all(dir)?;
    clap_mangen::generate_to(command_line(), dir)
}
