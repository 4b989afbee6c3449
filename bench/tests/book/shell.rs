//! As much of a shell's grammar as commands in documents need: lines, commands and words.

/// Returns the lines of a script: what a quote or a backslash at its end spans is one. Comments are left out.
pub fn lines(script: &str) -> Vec<String> {
    let mut lines = vec![String::new()];
    let mut quote = None;
    let mut before = ' ';
    let mut rest = script.chars().peekable();
    while let Some(c) = rest.next() {
        let line = lines.last_mut().expect("a line");
        match (quote, c) {
            (None | Some('"'), '\\') => {
                if rest.next_if_eq(&'\n').is_none() {
                    line.push(c);
                    line.extend(rest.next());
                }
            }
            (None, '#') if before.is_whitespace() => while rest.next_if(|c| *c != '\n').is_some() {},
            (None, '\n') => lines.push(String::new()),
            _ => {
                line.push(c);
                match quote {
                    None if c == '\'' || c == '"' => quote = Some(c),
                    Some(open) if c == open => quote = None,
                    _ => {}
                }
            }
        }
        before = c;
    }
    lines.iter().map(|line| line.trim().to_owned()).filter(|line| !line.is_empty()).collect()
}

/// Returns the commands of a line, each as its words without quotes; redirections are words.
fn commands(line: &str) -> Vec<Vec<String>> {
    let mut commands = vec![Vec::new()];
    let mut word: Option<String> = None;
    let mut quote = None;
    let mut rest = line.chars().peekable();
    while let Some(c) = rest.next() {
        match quote {
            Some(open) if c == open => quote = None,
            Some('"') if c == '\\' => word.get_or_insert_default().extend(rest.next()),
            Some(_) => word.get_or_insert_default().push(c),
            None => match c {
                '\'' | '"' => {
                    quote = Some(c);
                    word.get_or_insert_default();
                }
                '\\' => word.get_or_insert_default().extend(rest.next()),
                '&' if word.as_ref().is_some_and(|word| word.ends_with('>')) => word.get_or_insert_default().push(c),
                ';' | '&' | '|' | '(' | ')' | '\n' => {
                    commands.last_mut().expect("a command").extend(word.take());
                    commands.push(Vec::new());
                }
                c if c.is_whitespace() => commands.last_mut().expect("a command").extend(word.take()),
                c => word.get_or_insert_default().push(c),
            },
        }
    }
    commands.last_mut().expect("a command").extend(word);
    commands.retain(|words| !words.is_empty());
    commands
}

/// A command in a document.
#[derive(Debug, PartialEq, Eq)]
pub struct Named {
    /// What it starts.
    pub program: String,
    /// Of irnic: its arguments, up to those of an application.
    pub arguments: Vec<String>,
}

/// Returns the commands of a script, with those in its scripts (`sh -c '…'`) and behind others (`chrt -r 1 irnic …`).
pub fn named(script: &str) -> Vec<Named> {
    let mut found = Vec::new();
    for words in lines(script).iter().flat_map(|line| commands(line)) {
        let is_program = |word: &&String| {
            !word.split_once('=').is_some_and(|(name, _)| name.bytes().all(|c| c.is_ascii_uppercase() || c == b'_'))
        };
        let Some(first) = words.iter().position(|word| is_program(&word)) else { continue };
        let words = &words[first..];
        // What cargo would build and run is what the test has.
        let built = words[0] == "cargo" && words.get(1).is_some_and(|word| word == "run");
        let of_irnic = |from: usize| {
            let ends = |word: &&String| *word != "--" && !word.starts_with(['>', '<']) && !word.starts_with("2>");
            Named { program: "irnic".into(), arguments: words[from..].iter().take_while(ends).cloned().collect() }
        };
        match words.iter().position(|word| word == "--") {
            Some(dashes) if built => found.push(of_irnic(dashes + 1)),
            _ if words[0] != "irnic" => found.push(Named { program: words[0].clone(), arguments: Vec::new() }),
            _ => {}
        }
        found.extend((0..words.len()).filter(|at| words[*at] == "irnic").map(|at| of_irnic(at + 1)));
        let scripts = words.iter().filter(|word| word.contains(char::is_whitespace) && word.contains("irnic "));
        found.extend(scripts.flat_map(|script| named(script)));
    }
    found
}
