//! Command lines for a shell.

/// Quotes words for a POSIX shell.
pub fn quoted(words: &[impl AsRef<str>]) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "_-./:=,+@%".contains(c);
    let one = |word: &str| {
        if !word.is_empty() && word.chars().all(plain) {
            word.to_owned()
        } else {
            format!("'{}'", word.replace('\'', "'\\''"))
        }
    };
    words.iter().map(|word| one(word.as_ref())).collect::<Vec<_>>().join(" ")
}
