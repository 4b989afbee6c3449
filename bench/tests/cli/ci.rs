//! docs/ci.md: its lines do in the sample projects what the page says, and the action does what its file says.

use std::ffi::OsString;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::support::{Folder, long_form, needs, skipped, text};
use yaml_rust2::{Yaml, YamlLoader};

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..").canonicalize().expect("the repository")
}

/// The first block of a language below a heading of the page.
fn block(heading: &str, language: &str) -> String {
    let page = std::fs::read_to_string(repository().join("docs/ci.md")).expect("the page");
    let section = page.split(&format!("\n## {heading}\n")).nth(1).expect(heading);
    let begin = section.split(&format!("```{language}\n")).nth(1).expect(language);
    begin.split("```").next().expect("an end").to_owned()
}

fn yaml(source: &str) -> Yaml {
    YamlLoader::load_from_str(source).expect("YAML").remove(0)
}

/// Where the program of this test is, in front of what is in `PATH`.
fn path(first: &Path) -> OsString {
    let old = std::env::var_os("PATH").unwrap_or_default();
    std::env::join_paths([first.to_owned()].into_iter().chain(std::env::split_paths(&old))).expect("a PATH")
}

/// `cargo` where irnic is built as the page says: it builds what the tests were built with, where they were built, so
/// that nothing is built twice and no program is replaced that other tests run.
const CARGO_OF_TESTS: &str = r#"#!/bin/sh
for word; do
    shift
    case $word in .irnic/*) word=$(readlink -f "$word") ;; esac
    set -- "$@" "$word"
done
exec "$CARGO_OF_TESTS" "$@" --workspace --tests $FEATURES_OF_TESTS
"#;

/// What `PATH` is then.
fn path_to_build(folder: &Folder) -> OsString {
    let script = folder.write("cargo", CARGO_OF_TESTS);
    std::fs::set_permissions(script, PermissionsExt::from_mode(0o755)).expect("a mode");
    path(folder.path())
}

/// Says what [`CARGO_OF_TESTS`] runs.
fn name_cargo(command: &mut Command) {
    command.env("CARGO_OF_TESTS", std::env::var("CARGO").unwrap_or("cargo".into()));
    command.env("FEATURES_OF_TESTS", if cfg!(feature = "parquet") { "--all-features" } else { "" });
}

/// Runs a line as CI does, in a folder.
fn run(folder: &Path, path: &OsString, line: &str) -> String {
    let mut command = Command::new("bash");
    command.args(["-e", "-o", "pipefail", "-c", line]).current_dir(folder).env("PATH", path);
    for (name, _) in std::env::vars_os() {
        // Cargo's are for this test; irnic's would change what is tested.
        let name = name.to_string_lossy().into_owned();
        if name.starts_with("IRNIC_") || name.starts_with("CARGO_") && name != "CARGO_HOME" || name == "LD_LIBRARY_PATH"
        {
            command.env_remove(name);
        }
    }
    name_cargo(&mut command);
    let output = command.output().expect("bash runs");
    assert!(output.status.success(), "{line}: {}{}", text(&output.stdout), text(&output.stderr));
    text(&output.stdout)
}

/// A copy of a sample project.
fn project(name: &str) -> Folder {
    let folder = Folder::new();
    let from = repository().join("bench/examples").join(name);
    let copied = Command::new("cp").arg("-r").arg(from.join(".")).arg(folder.path()).status().expect("cp runs");
    assert!(copied.success());
    folder
}

/// The action's own steps that run something, as GitHub runs them. Returns what they put into `PATH`.
fn act(profile: &str) -> PathBuf {
    let place = repository().join(".github/actions/irnic");
    let action = yaml(&std::fs::read_to_string(place.join("action.yml")).expect("the action"));
    let folder = Folder::new();
    let added = folder.write("path", "");
    for step in action["runs"]["steps"].as_vec().expect("steps") {
        let Some(script) = step["run"].as_str() else { continue };
        let mut bash = Command::new("bash");
        bash.args(["-e", "-o", "pipefail", "-c", script])
            .current_dir(folder.path())
            .env("PATH", path_to_build(&folder))
            .env("GITHUB_ACTION_PATH", &place)
            .env("GITHUB_PATH", &added)
            .env("PROFILE", profile);
        name_cargo(&mut bash);
        let output = bash.output().expect("bash runs");
        assert!(output.status.success(), "{}{}", text(&output.stdout), text(&output.stderr));
        assert!(
            text(&output.stdout).contains(concat!("irnic ", env!("CARGO_PKG_VERSION"))),
            "{}",
            text(&output.stdout)
        );
    }
    let added = std::fs::read_to_string(added).expect("a path");
    PathBuf::from(added.trim())
}

/// The lines of the page's job on GitHub that run something.
fn lines() -> Vec<String> {
    let job = yaml(&block("GitHub", "yaml"));
    let steps = job["jobs"]["test"]["steps"].as_vec().expect("steps");
    let uses: Vec<&str> = steps.iter().filter_map(|step| step["uses"].as_str()).collect();
    assert_eq!(uses, ["actions/checkout@v4", "irnic/irnic/.github/actions/irnic@main"]);
    let lines: Vec<String> = steps.iter().filter_map(|step| step["run"].as_str().map(str::to_owned)).collect();
    assert!(lines.len() == 2 && lines[1].contains("loss 1%"), "{lines:?}");
    lines
}

#[test]
fn github_and_gitlab_test_an_application_in_c() {
    let Some(()) = needs(&["make", "cc"]) else { return };
    if !Path::new("/usr/include/infiniband/verbs.h").exists() {
        return skipped("the sample project in C: there is no infiniband/verbs.h");
    }
    // The profile of this test, so that nothing is built twice.
    let path = path(&act(if cfg!(debug_assertions) { "dev" } else { "release" }));
    let folder = project("c");
    for line in lines() {
        assert!(run(folder.path(), &path, &line).contains("every byte as it was"));
    }
    // irnic is in the cache already; the program is that of this test.
    std::os::unix::fs::symlink(repository(), folder.path().join(".irnic")).expect("a link");
    let job = yaml(&block("GitLab", "yaml"));
    let script = |key: &str| -> Vec<String> {
        let lines = job["test"][key].as_vec().expect(key);
        lines.iter().map(|line| line.as_str().expect("a line").to_owned()).collect()
    };
    let mut all = script("before_script");
    if cfg!(debug_assertions) {
        all.iter_mut().for_each(|line| *line = line.replace("--release", "").replace("target/release", "target/debug"));
    }
    all.extend(script("script"));
    let cargo = Folder::new();
    let said = run(folder.path(), &path_to_build(&cargo), &all.join("\n"));
    assert_eq!(said.matches("every byte as it was").count(), 2);
}

#[test]
fn an_application_in_python_is_tested_with_files_under_sys() {
    if !Path::new("/usr/lib/python3/dist-packages/pyverbs").exists() {
        return skipped("the sample project in Python: there is no pyverbs");
    }
    let page = std::fs::read_to_string(repository().join("docs/ci.md")).expect("the page");
    let line = "irnic run --sysfs -- python3 -m unittest";
    assert!(page.contains(line));
    let folder = project("python");
    let program = Path::new(env!("CARGO_BIN_EXE_irnic"));
    // pyverbs is for the distribution's Python.
    let own = folder.path().join("bin");
    std::fs::create_dir(&own).expect("a folder");
    std::os::unix::fs::symlink("/usr/bin/python3", own.join("python3")).expect("a link");
    let path = path(&own);
    let path = std::env::join_paths(
        [own.as_path(), program.parent().expect("a folder")]
            .into_iter()
            .map(Path::to_owned)
            .chain(std::env::split_paths(&path)),
    );
    let path = path.expect("a PATH");
    run(folder.path(), &path, line);
    run(folder.path(), &path, &line.replace("--sysfs", "--sysfs --impair 'loss 1%'"));
}

#[test]
fn an_application_in_rust_is_tested_by_cargo() {
    if std::env::var("IRNIC_APPLICATIONS").as_deref() != Ok("long") {
        return long_form("the sample project in Rust, which builds an rdma-core first");
    }
    let Some(()) = needs(&["cmake", "pkg-config"]) else { return };
    let folder = project("ibverbs");
    let path = path(Path::new(env!("CARGO_BIN_EXE_irnic")).parent().expect("a folder"));
    for line in lines() {
        let said = run(folder.path(), &path, &line.replace("make test", "cargo test"));
        assert!(said.contains("what_is_sent_comes_back ... ok"), "{said}");
    }
}

#[test]
fn an_image_has_the_libraries_where_the_program_looks() {
    let file = block("In a container image", "dockerfile");
    let folder = Folder::new();
    let profile = Path::new(env!("CARGO_BIN_EXE_irnic")).parent().expect("a folder").to_owned();
    for line in file.lines().filter_map(|line| line.strip_prefix("COPY --from=irnic ")) {
        let mut words: Vec<&str> = line.split_whitespace().collect();
        let to = folder.path().join(words.pop().expect("a place").trim_start_matches('/'));
        let many = words.len() > 1;
        std::fs::create_dir_all(if many { &to } else { to.parent().expect("a folder") }).expect("folders");
        for word in words {
            let name = word.strip_prefix("/irnic/target/release/").expect("what was built");
            let from = if name.ends_with(".so") { profile.join("deps").join(name) } else { profile.join(name) };
            std::fs::copy(from, if many { to.join(name) } else { to.clone() }).expect("a copy");
        }
    }
    let irnic = folder.path().join("usr/local/bin/irnic");
    let doctor =
        Command::new(irnic).args(["doctor"]).env_clear().env("PATH", "/usr/bin:/bin").output().expect("it runs");
    let said = text(&doctor.stdout);
    let there = |name: &str| {
        said.contains(&format!("ok    library       {}/usr/local/lib/irnic/{name}", folder.path().display()))
    };
    assert!(there("libirnic_verbs.so") && there("libirnic_sysfs.so"), "{said}");
}
