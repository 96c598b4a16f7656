//! The answer to a command.

use bytes::Bytes;
use serde_json::Value;
use spirula_errno::Errno;
use spirula_text::{Format, Names};

/// Result code, status line (standard error) and output (standard output).
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Reply {
    /// 0, or a negative errno.
    pub code: i32,
    /// The status line.
    pub status: String,
    /// The output.
    pub data: Bytes,
    /// Output that is still to be rendered as XML, which takes the command's names.
    tree: Option<Box<(Format, Value)>>,
}

impl Reply {
    /// Success with a status line.
    pub fn status(status: impl Into<String>) -> Self {
        Self {
            status: status.into(),
            ..Self::default()
        }
    }

    /// Success with output.
    pub fn data(data: impl Into<Bytes>) -> Self {
        Self {
            data: data.into(),
            ..Self::default()
        }
    }

    /// Success with text as output.
    pub fn text(text: impl Into<String>) -> Self {
        Self::data(text.into().into_bytes())
    }

    /// Success with a value as output: JSON, or XML once `named` has set the names.
    pub fn json(format: Format, v: &Value) -> Self {
        match format.is_xml() {
            false => Self::data(format.render(v)),
            true => Self {
                tree: Some(Box::new((format, v.clone()))),
                ..Self::default()
            },
        }
    }

    /// The same reply with a newline after its output, as in the official monitor.
    #[must_use]
    pub fn with_newline(mut self) -> Self {
        if self.tree.is_none() {
            self.data = [&self.data[..], b"\n"].concat().into();
        }
        self
    }

    /// The reply with its output rendered.
    #[must_use]
    pub(super) fn named(mut self, names: Names<'_>) -> Self {
        if let Some(tree) = self.tree.take() {
            self.data = tree.0.render_named(&tree.1, names).into();
        }
        self
    }

    /// Failure.
    pub fn error(errno: Errno, status: impl Into<String>) -> Self {
        Self {
            code: -errno,
            status: status.into(),
            ..Self::default()
        }
    }

    /// Failure of one of those commands of modules whose errno has no sign: the official tool takes
    /// them for success, prints them and exits with 0.
    pub fn error_without_sign(errno: Errno, status: impl Into<String>) -> Self {
        Self {
            code: errno.code(),
            status: status.into(),
            ..Self::default()
        }
    }

    /// The same reply with a status line.
    #[must_use]
    pub fn with_status(mut self, status: impl Into<String>) -> Self {
        self.status = status.into();
        self
    }
}
