//! Shared parts of irnic's commands: standard output and result files, pages, pictures, tables, interruption, exit
//! statuses, command lines.
//!
//! Each command crate has `#[macro_use] extern crate irnic_report;`, for [`println!`] and [`eprintln!`], which do not
//! panic on write errors: [`output::finish`] reports them.

pub mod csv;
mod error;
pub mod html;
pub mod interrupt;
pub mod junit;
pub mod looks;
pub mod origin;
#[macro_use]
pub mod output;
pub mod picture;
pub mod shell;
pub mod table;
pub mod usage;
pub mod version;
pub mod words;

pub use error::CommandError;
