//! `ls`.

use std::fs::File;
use std::io::{self, BufWriter, Write};

use serde_json::json;
use spirula_client::errno::Errno;
use spirula_client::{Listed, Striper};
use spirula_text::Format;

use super::format::{self, text};
use super::objects::unwritten;
use super::{Done, Tool, complain};

/// Writes entries one by one: there may be more than fit into memory.
struct Lister {
    out: Box<dyn Write>,
    format: Format,
    with_namespace: bool,
    count: u64,
}

impl Lister {
    /// Writes the line of an entry. Names are bytes and are written as such.
    fn line(&mut self, entry: &Listed) -> io::Result<()> {
        let out = &mut self.out;
        if self.with_namespace {
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

    fn entry(&mut self, entry: &Listed) -> io::Result<()> {
        if self.format == Format::Plain {
            return self.line(entry);
        }
        let mut object = json!({
            "namespace": text(entry.nspace.as_bytes()),
            "name": text(entry.oid.as_bytes()),
        });
        if !entry.locator.is_empty() {
            object["locator"] = text(entry.locator.as_bytes()).into();
        }
        let whole = format::render(self.format, &object, "object", "");
        let first = self.count == 0;
        self.count += 1;
        match self.format {
            Format::Plain | Format::Json => {
                self.out.write_all(if first { b"[" } else { b"," })?;
                self.out.write_all(&whole)
            }
            Format::JsonPretty => {
                self.out.write_all(if first { b"[" } else { b"," })?;
                self.indented(&whole, "\n    ", "")
            }
            Format::Xml => {
                self.out.write_all(if first { b"<objects>" } else { b"" })?;
                self.out.write_all(&whole)
            }
            Format::XmlPretty => {
                self.out.write_all(if first { b"<objects>\n" } else { b"" })?;
                self.indented(&whole, " ", "\n")
            }
        }
    }

    fn indented(&mut self, whole: &[u8], before: &str, behind: &str) -> io::Result<()> {
        for line in text(whole).lines().filter(|l| !l.is_empty()) {
            write!(self.out, "{before}{line}{behind}")?;
        }
        Ok(())
    }

    fn end(&mut self, line_feed: bool) -> io::Result<()> {
        let none = self.count == 0;
        let end: &[u8] = match self.format {
            Format::Plain => b"",
            Format::Json if none => b"[]",
            Format::Json => b"]",
            Format::JsonPretty if none => b"[]\n",
            Format::JsonPretty => b"\n]\n",
            Format::Xml if none => b"<objects></objects>",
            Format::Xml => b"</objects>",
            Format::XmlPretty if none => b"<objects>\n</objects>\n\n",
            Format::XmlPretty => b"</objects>\n\n",
        };
        self.out.write_all(end)?;
        if line_feed && self.format != Format::Plain {
            self.out.write_all(b"\n")?;
        }
        self.out.flush()
    }
}

impl Tool {
    pub(super) async fn list(&self) -> Done {
        let Some(io) = &self.io else {
            return Err(complain(1, "either pool name or pg id needs to be specified"));
        };
        let to_stdout = self.words.get(1).is_none_or(|w| w == "-");
        let out: Box<dyn Write> = match &self.args.output {
            Some(path) => {
                let file = File::create(path)
                    .map_err(|e| complain(1, format!("can't open {path}: {}", Errno::from(&e))))?;
                Box::new(BufWriter::new(file))
            }
            None if to_stdout => Box::new(BufWriter::new(io::stdout())),
            None => return Err(complain(1, "Please use --output to specify the output file name")),
        };
        let broken = |e: io::Error| unwritten(&e);
        let all = self.all_namespaces();
        let mut lister = Lister {
            out,
            format: self.format,
            with_namespace: all,
            count: 0,
        };
        let mut entries = match self.pgid {
            Some(pg) => io.list_pg(pg.seed, all),
            None => io.list(all),
        };
        loop {
            let entry = entries.next().await;
            let entry = entry.map_err(|e| complain(1, format!("error listing objects: {}", e.errno())))?;
            let Some(mut entry) = entry else { break };
            if self.args.striper {
                let Some(whole) = Striper::whole_name(&entry.oid) else {
                    continue;
                };
                entry.oid = whole;
            }
            lister.entry(&entry).map_err(broken)?;
        }
        lister.end(self.args.pretty_format).map_err(broken)
    }
}
