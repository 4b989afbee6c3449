//! `irnic completions` and `irnic man`: shell completions and man pages.

use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Args, Command};
use clap_complete::Shell;

use irnic_report::output::Stdout;

/// Arguments of `irnic completions`.
#[derive(Args)]
#[command(
    about = "Print shell completions",
    after_help = "\
Examples:
  irnic completions bash > ~/.local/share/bash-completion/completions/irnic
  irnic completions zsh > ~/.zfunc/_irnic                      with ~/.zfunc in $fpath
  irnic completions fish > ~/.config/fish/completions/irnic.fish"
)]
pub struct CompletionsArgs {
    /// Shell
    pub shell: Shell,
}

/// Arguments of `irnic man`.
#[derive(Args)]
#[command(
    about = "Write man pages: irnic.1 and one per command",
    after_help = "\
Examples:
  irnic man ~/.local/share/man/man1 && man irnic-sim
  irnic man --page lab | man -l -"
)]
pub struct ManArgs {
    /// Folder to write to, created if missing
    #[arg(value_name = "FOLDER", required_unless_present = "page")]
    pub folder: Option<PathBuf>,
    /// Print the page of this command to standard output instead
    #[arg(long, value_name = "COMMAND", conflicts_with = "folder")]
    pub page: Option<String>,
}

/// Runs `irnic completions`.
pub fn completions(args: &CompletionsArgs, mut command: Command) -> ExitCode {
    // Generated in memory: the generator panics on write errors.
    let mut text = Vec::new();
    clap_complete::generate(args.shell, &mut command, "irnic", &mut text);
    output_of(io::Write::write_all(&mut Stdout, &text))
}

/// Runs `irnic man`.
pub fn man(args: &ManArgs, mut command: Command) -> ExitCode {
    command.build();
    if let Some(name) = &args.page {
        let Some(page) = command.find_subcommand(name) else {
            let names: Vec<&str> = commands(&command).map(Command::get_name).collect();
            eprintln!("irnic man: --page {name}: expected one of {}", names.join(", "));
            return ExitCode::from(2);
        };
        return output_of(rendered(page).and_then(|text| io::Write::write_all(&mut Stdout, &text)));
    }
    let Some(folder) = &args.folder else { return ExitCode::from(2) };
    match write_pages(folder, &command) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("irnic man: {}: {error}", folder.display());
            ExitCode::FAILURE
        }
    }
}

/// Write errors of standard output are reported separately.
fn output_of(written: io::Result<()>) -> ExitCode {
    if written.is_ok() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Returns the commands with their own page.
fn commands(command: &Command) -> impl Iterator<Item = &Command> {
    command.get_subcommands().filter(|sub| sub.get_name() != "help")
}

fn write_pages(folder: &Path, command: &Command) -> io::Result<()> {
    std::fs::create_dir_all(folder)?;
    std::fs::write(folder.join("irnic.1"), rendered(command)?)?;
    commands(command).try_for_each(|sub| {
        std::fs::write(folder.join(format!("irnic-{}.1", sub.get_name())), rendered(sub)?)?;
        // Papers and the like are subcommands of subcommands.
        commands(sub).try_for_each(|page| {
            let name = format!("irnic-{}-{}.1", sub.get_name(), page.get_name());
            std::fs::write(folder.join(name), rendered(page)?)
        })
    })
}

fn rendered(command: &Command) -> io::Result<Vec<u8>> {
    let mut text = Vec::new();
    clap_mangen::Man::new(command.clone().disable_help_subcommand(true)).render(&mut text)?;
    Ok(text)
}
