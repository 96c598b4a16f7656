//! First steps with the arguments of `rados` and `rbd`.

use std::ffi::OsString;

use clap::Parser;

use super::conn::{self, Connection};

/// The arguments behind the tool's name as text, those of `CEPH_ARGS` last.
pub(crate) fn words(args: Vec<OsString>) -> Vec<String> {
    let lossy = |arg: OsString| arg.to_string_lossy().into_owned();
    args.into_iter().map(lossy).chain(conn::environment()).collect()
}

/// Takes the arguments of the connection out, and parses the others in the order that `sort` gives
/// them. Where `refusal` has a message for arguments that can't be parsed, it replaces clap's.
///
/// # Errors
/// The exit code, after the reason was printed, as `complain` does it. 0 where the version or the
/// help was asked for.
pub(crate) fn parse<A: Parser>(
    tool: &str,
    words: Vec<String>,
    sort: impl FnOnce(Vec<String>) -> Result<Vec<String>, String>,
    refusal: impl FnOnce(&clap::Error) -> Option<String>,
    complain: impl Fn(String) -> i32,
) -> Result<(A, Connection), i32> {
    if words
        .iter()
        .take_while(|w| *w != "--")
        .any(|w| w == "-v" || w == "--version")
    {
        println!("{}", super::VERSION);
        return Err(0);
    }
    let mut connection = Connection::default();
    let words = connection.take(words).and_then(sort).map_err(&complain)?;
    let args = A::try_parse_from(std::iter::once(tool.to_owned()).chain(words)).map_err(|e| {
        if let Some(text) = refusal(&e) {
            return complain(text);
        }
        // Where it can't be printed there is nobody to read it.
        let _ = e.print();
        i32::from(e.use_stderr())
    })?;
    Ok((args, connection))
}
