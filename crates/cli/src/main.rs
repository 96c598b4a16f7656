//! `spirula`: a Ceph-compatible storage cluster in one small binary.
//!
//! The same binary is the supervisor (`up`, `down`, `status`), the daemons (`mon`, `osd`), the
//! store's tool (`store`), and the clients (`ceph`, `rados`, `rbd`), the latter also when it is
//! called through a link of their name.

mod admin;
mod allocator;
mod ceph;
mod colour;
mod daemon;
mod device;
mod documents;
mod down;
mod error;
mod hardening;
mod layout;
mod log;
mod manager;
mod pidfile;
mod rados;
mod rbd;
#[cfg(all(target_env = "gnu", target_feature = "crt-static"))]
mod static_libc;
mod status;
mod store;
mod up;

use std::ffi::OsString;
use std::path::Path;
use std::process::ExitCode;

use clap::{Parser, Subcommand};

use error::Error;

/// A Ceph-compatible storage cluster in one small binary
#[derive(Debug, Parser)]
#[command(name = "spirula", version = env!("SPIRULA_VERSION"))]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Up(up::Args),
    Down(down::Args),
    Status(status::Args),
    /// The monitor daemon
    #[command(subcommand)]
    Mon(daemon::MonCommand),
    /// The object storage daemon
    #[command(subcommand)]
    Osd(daemon::OsdCommand),
    /// Make, check and show object stores
    #[command(subcommand)]
    Store(store::Command),
    Completions(documents::CompletionArgs),
    Man(documents::ManArgs),
    /// The manager's modules, for the monitor that starts them
    #[command(hide = true)]
    Manager,
    /// The cluster's administration, with the official tool's arguments
    #[command(disable_help_flag = true)]
    Ceph {
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        args: Vec<OsString>,
    },
    /// Object access, with the official tool's arguments
    #[command(disable_help_flag = true)]
    Rados {
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        args: Vec<OsString>,
    },
    /// What makes an image a block device, for `rbd map` that starts it
    #[command(hide = true, disable_help_flag = true)]
    RbdNbd {
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        args: Vec<OsString>,
    },
    /// Block images, with the official tool's arguments
    #[command(disable_help_flag = true)]
    Rbd {
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        args: Vec<OsString>,
    },
}

fn main() -> ExitCode {
    end_after_panics();
    #[cfg(all(target_env = "gnu", target_feature = "crt-static"))]
    static_libc::load_nothing();
    let args: Vec<OsString> = std::env::args_os().collect();
    let called = args
        .first()
        .and_then(|a| Path::new(a).file_name())
        .map(|n| n.to_string_lossy().into_owned());
    let command = match called.as_deref() {
        Some("ceph") => Command::Ceph {
            args: args[1..].to_vec(),
        },
        Some("rados") => Command::Rados {
            args: args[1..].to_vec(),
        },
        Some("rbd") => Command::Rbd {
            args: args[1..].to_vec(),
        },
        Some(rbd::NBD_PROCESS) => Command::RbdNbd {
            args: args[1..].to_vec(),
        },
        _ => Cli::parse_from(args).command,
    };
    if let Command::Manager = command
        && let Err(e) = manager::prepare()
    {
        return report(Err(e));
    }
    let is_client = matches!(
        command,
        Command::Ceph { .. }
            | Command::Rados { .. }
            | Command::Rbd { .. }
            | Command::RbdNbd { .. }
            | Command::Completions(_)
            | Command::Man(_)
    );
    // A client's files are the user's matter, as those of the official tools.
    if !is_client && let Err(e) = hardening::harden() {
        return report(Err(e));
    }
    match command {
        Command::Ceph { args } => client(log::CLIENTS, ceph::run(args)),
        Command::Rados { args } => client(log::CLIENTS, rados::run(args)),
        Command::Rbd { args } => client(log::CLIENTS, rbd::run(args)),
        Command::RbdNbd { args } => client(log::DAEMONS, rbd::run_nbd(args)),
        Command::Up(args) => report(local(up::run(args))),
        Command::Down(args) => report(local(down::run(args))),
        Command::Status(args) => report(local(status::run(args))),
        Command::Mon(command) => report(local(daemon::mon(command))),
        Command::Osd(command) => report(local(daemon::osd(command))),
        Command::Manager => report(manager::run()),
        Command::Completions(args) => {
            documents::completions(args);
            ExitCode::SUCCESS
        }
        Command::Man(args) => report(documents::man(&args)),
        Command::Store(command) => store::run(command),
    }
}

/// Makes a panic end the process, in whatever thread and build profile. The recorded transitions
/// are printed first, so that the panic itself is the end of the log.
fn end_after_panics() {
    let tell = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        eprint!("{}", spirula_invariant::told());
        tell(panic);
        std::process::abort();
    }));
}

/// Runs a daemon's or supervisor's future with tasks of its own on this thread.
fn local<T>(future: impl Future<Output = Result<T, Error>>) -> Result<T, Error> {
    log::start(log::DAEMONS);
    block_on(future)
}

fn block_on<T>(future: impl Future<Output = Result<T, Error>>) -> Result<T, Error> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .max_blocking_threads(2)
        .build()
        .map_err(Error::Runtime)?;
    tokio::task::LocalSet::new().block_on(&runtime, future)
}

fn client(logged: &str, run: impl Future<Output = i32>) -> ExitCode {
    log::start(logged);
    match block_on(async { Ok(run.await) }) {
        // The shell sees the low byte, as with the official tools.
        Ok(code) => ExitCode::from(code as u8),
        Err(e) => report(Err(e)),
    }
}

fn report(result: Result<(), Error>) -> ExitCode {
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("Error: {e}");
            ExitCode::FAILURE
        }
    }
}
