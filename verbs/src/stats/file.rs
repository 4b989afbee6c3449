//! Recognition of statistics files.

use std::fs::File;
use std::io::{self, Read};

use irnic_ports::output::Kind;

/// Files written by `stats=FILE.json`.
pub static STATISTICS: Kind = Kind::new("statistics of irnic", is_statistics);

/// Maximum length of a statistics file, in bytes: 1024 queue pairs and a device make half a megabyte.
const MAX_LENGTH: u64 = 64 << 20;

fn is_statistics(file: &mut File) -> io::Result<bool> {
    if file.metadata()?.len() > MAX_LENGTH {
        return Ok(false);
    }
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes)?;
    let Ok(serde_json::Value::Object(report)) = serde_json::from_slice(&bytes) else { return Ok(false) };
    Ok(report.len() == 3 && report["process"].is_u64() && report["command"].is_string() && report["devices"].is_array())
}

#[cfg(test)]
mod tests {
    use std::fs;

    use irnic_ports::output::{Output, OutputError};

    use super::*;

    #[test]
    fn only_statistics_and_empty_files_are_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        for own in [&br#"{ "process": 1, "command": "app", "devices": [] }"#[..], b""] {
            fs::write(&path, own).unwrap();
            Output::check(&path, &STATISTICS).unwrap();
            assert_eq!(fs::read(&path).unwrap(), own);
            Output::clear(&path, &STATISTICS).unwrap();
            assert_eq!(fs::read(&path).unwrap(), b"");
        }
        let other = br#"{ "process": 1, "command": "app", "devices": [], "more": 1 }"#;
        for foreign in [&b"years of work"[..], b"{}", other, b"\x0a\x0d\x0d\x0a\x1c\0\0\0\x4d\x3c\x2b\x1a"] {
            fs::write(&path, foreign).unwrap();
            for refused in [
                Output::replace(&path, &STATISTICS).map(drop),
                Output::check(&path, &STATISTICS),
                Output::clear(&path, &STATISTICS),
            ] {
                assert!(matches!(refused, Err(OutputError::Foreign("statistics of irnic"))), "{refused:?}");
                assert_eq!(fs::read(&path).unwrap(), foreign);
            }
        }
    }
}
