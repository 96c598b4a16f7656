//! How things print: numbers, sizes, times, tables, JSON and XML as the official daemons and tools
//! lay them out.
//!
//! Values come in, text goes out; which value a command shows is its own affair. Python's spelling,
//! which the official manager and `ceph` have, is in [`python`].

mod json;
mod line;
mod number;
pub mod python;
pub mod size;
mod table;
pub mod time;
mod xml;

pub use json::Format;
pub use line::{addr_legacy, addr_value, cut, one_line};
pub use number::{general, percent};
pub use table::{Align, Table};
pub use xml::Names;
