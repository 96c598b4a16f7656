//! Output as the official monitor lays it out: JSON, XML, tables and units.

mod json;
mod table;
mod text;
mod units;
mod xml;

pub use json::{Format, float};
pub use table::{Align, Table};
pub use text::{cut, one_line};
pub use units::{addr_legacy, age, bytes, count, percent, time_iso};
pub use xml::{Names, render as render_xml};
