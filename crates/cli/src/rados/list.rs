//! `ls`.

use std::fs::File;
use std::io::{self, BufWriter, Write};

use serde_json::json;
use spirula_client::Listed;

use super::args::Format;
use super::objects::unwritten;
use super::{Done, Tool, complain};
use crate::ceph::common::errno::{describe, of};

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Writes an entry in a line of its own; names are bytes and stay what they are.
fn line(out: &mut dyn Write, entry: &Listed, with_namespace: bool) -> io::Result<()> {
    if with_namespace {
        out.write_all(entry.nspace.as_bytes())?;
        out.write_all(b"\t")?;
    }
    out.write_all(entry.oid.as_bytes())?;
    if !entry.locator.is_empty() {
        out.write_all(b"\t")?;
        out.write_all(entry.locator.as_bytes())?;
    }
    out.write_all(b"\n")
}

fn object(entry: &Listed) -> serde_json::Value {
    let mut object = json!({
        "namespace": text(entry.nspace.as_bytes()),
        "name": text(entry.oid.as_bytes()),
    });
    if !entry.locator.is_empty() {
        object["locator"] = text(entry.locator.as_bytes()).into();
    }
    object
}

impl Tool {
    pub(super) async fn list(&self) -> Done {
        let Some(io) = &self.io else {
            return Err(complain(1, "either pool name or pg id needs to be specified"));
        };
        let to_stdout = self.words.get(1).is_none_or(|w| w == "-");
        let mut out: Box<dyn Write> = match &self.args.output {
            Some(path) => {
                let file = File::create(path)
                    .map_err(|e| complain(1, format!("can't open {path}: {}", describe(of(&e)))))?;
                Box::new(BufWriter::new(file))
            }
            None if to_stdout => Box::new(BufWriter::new(io::stdout())),
            None => return Err(complain(1, "Please use --output to specify the output file name")),
        };
        let broken = |e: io::Error| unwritten(&e);
        let all = self.all_namespaces();
        let mut entries = io.list(all);
        let mut objects = Vec::new();
        loop {
            let entry = entries.next().await;
            let entry =
                entry.map_err(|e| complain(1, format!("error listing objects: {}", describe(e.errno()))))?;
            let Some(entry) = entry else { break };
            match self.format {
                Format::Plain => line(&mut out, &entry, all).map_err(broken)?,
                Format::Json | Format::JsonPretty => objects.push(object(&entry)),
            }
        }
        if self.format != Format::Plain {
            out.write_all(&self.format.json(&objects.into()))
                .map_err(broken)?;
            if self.args.pretty_format {
                out.write_all(b"\n").map_err(broken)?;
            }
        }
        out.flush().map_err(broken)
    }
}
