//! The official formatters' output: JSON and XML of the same values (`src/common/Formatter.cc`).

mod json;
mod xml;

pub use json::{Format, float};
pub use xml::{Names, render as render_xml};
