//! What irnic's commands share: standard output and files of results, pages, pictures, tables, interruption, exit
//! statuses, command lines.
//!
//! Each crate of a command has `#[macro_use] extern crate irnic_report;`, for [`println!`] and [`eprintln!`], which
//! do not panic when output is lost: [`output::finish`] tells it.

mod error;
pub mod html;
pub mod interrupt;
pub mod junit;
#[macro_use]
pub mod output;
pub mod picture;
pub mod table;
pub mod usage;
pub mod version;

pub use error::CommandError;
